//! A node process on free ports.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Answer, Client, bearer};
use super::{PATIENCE, wait_until};

/// The program under test, with trace logs: whatever a test does, it is also a test of what is logged.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latent-node"));
    command.env("LATENT_LOG", "trace").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The token of operators where [`ADMIN`] is in the configuration and [`ADMIN_FILE`] beside it.
pub(crate) const OPERATOR: &str = "token-of-operators";
pub(crate) const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"operators\"\n";
pub(crate) const ADMIN_FILE: (&str, &str) = ("operators", OPERATOR);

/// A folder of its own for the files of one test.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("latent-node-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.path(name);
        std::fs::write(&file, content).expect("a file in the temporary folder");
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover temporary folder fails no test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node that serves.
#[derive(Debug)]
pub(crate) struct Node {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Everything it wrote to standard output, line by line.
    printed: Arc<Mutex<Vec<String>>>,
    log: Option<JoinHandle<String>>,
    folder: Option<Folder>,
}

/// How a node ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) printed: String,
    pub(crate) log: String,
}

impl Node {
    /// The demo on a free port.
    pub(crate) fn demo() -> Node {
        let mut command = program();
        command.args(["--listen", "127.0.0.1:0"]);
        Node::spawn(command, None)
    }

    /// With this configuration, and these files beside it. `listen` is added.
    pub(crate) fn serve(config: &str, files: &[(&str, &str)]) -> Node {
        let folder = Folder::new();
        for (name, content) in files {
            folder.write(name, content);
        }
        let file = folder.write("node.toml", &format!("listen = \"127.0.0.1:0\"\n{config}"));
        let mut command = program();
        command.arg("serve").arg("--config").arg(file);
        Node::spawn(command, Some(folder))
    }

    fn spawn(mut command: Command, folder: Option<Folder>) -> Node {
        let mut child = command.spawn().expect("the program starts");
        let mut stderr = child.stderr.take().expect("standard error is piped");
        let log = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).expect("standard error can be read");
            String::from_utf8_lossy(&text).into_owned()
        });
        let stdout = child.stdout.take().expect("standard output is piped");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let (listens, address) = channel();
        let lines = printed.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some((_, at)) = line.split_once("http://").filter(|_| line.contains("listening on")) {
                    // Nobody waits any more if the test has already failed.
                    let _ = listens.send(at.trim().parse::<SocketAddr>().expect("an address after http://"));
                }
                lines.lock().expect("no reader panicked").push(line);
            }
        });
        let address = address.recv_timeout(PATIENCE);
        // What cannot say where it listens has said why it does not.
        let mut node = Node { child, address: ([127, 0, 0, 1], 0).into(), printed, log: Some(log), folder };
        node.address = address.expect("the node says where it listens");
        node
    }

    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        self.printed.lock().expect("no reader panicked").join("\n")
    }

    /// What it has printed, once that is enough.
    pub(crate) fn printed_when(&self, enough: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        wait_until("the node prints what is awaited", || {
            text = self.printed();
            enough(&text)
        });
        text
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Answer {
        self.client().get(path, &format!("{headers}connection: close\r\n")).expect("an answer")
    }

    /// One request with a token, on a connection of its own.
    pub(crate) fn get_as(&self, token: &str, path: &str) -> Answer {
        self.get(path, &bearer(token))
    }

    pub(crate) fn snapshot(&self) -> serde_json::Value {
        self.get("/snapshot", "").json()
    }

    /// Waits until nothing is held for any request.
    pub(crate) fn settle(&self) {
        let mut last = serde_json::Value::Null;
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            last = self.snapshot();
            if held(&last).is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("still held: {}", held(&last).join(", "));
    }

    /// Changes a file beside the configuration, or the configuration itself.
    pub(crate) fn write(&self, name: &str, content: &str) {
        self.folder.as_ref().expect("the demo has no files").write(name, content);
    }

    /// Where operators call.
    pub(crate) fn admin(&self) -> SocketAddr {
        const BEFORE: &str = "operators on http://";
        let printed = self.printed_when(|text| text.contains(BEFORE));
        let (_, rest) = printed.split_once(BEFORE).expect("just found");
        rest.split('/').next().and_then(|at| at.parse().ok()).expect("an address after http://")
    }

    /// One request of an operator.
    pub(crate) fn operate(&self, method: &str, path: &str) -> Answer {
        let headers = format!("{}connection: close\r\n", bearer(OPERATOR));
        Client::connect(self.admin()).ask(method, path, &headers).expect("an answer")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("not zero");
        kill_process(pid, signal).expect("the node can be signalled");
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(mut self) -> Ended {
        let mut status = None;
        wait_until("the node ends", || {
            status = self.child.try_wait().expect("the node can be waited for");
            status.is_some()
        });
        let log = self.log.take().expect("taken once").join().expect("the log reader ends with the node");
        let status = status.expect("it ended");
        Ended { status, printed: self.printed(), log }
    }

    /// SIGTERM, and the end.
    pub(crate) fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A node that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(log) = self.log.take()
        {
            let log = log.join().unwrap_or_default();
            // The end of it is what matters, and all of it would drown the failure.
            let mut lines: Vec<&str> =
                log.lines().rev().filter(|line| !line.contains("TRACE")).take(40).collect();
            lines.reverse();
            eprintln!("the node's log:\n{}", lines.join("\n"));
        }
    }
}

/// The counts that must be zero when nothing is carried, and are not.
pub(crate) fn held(snapshot: &serde_json::Value) -> Vec<String> {
    const ZERO: [&str; 12] = [
        "/broker/sessions",
        "/io/owners",
        "/io/running",
        "/io/queued",
        "/io/staged_bytes",
        "/io/result_bytes",
        "/io/buffers",
        "/io/streams",
        "/pools/pending_requests",
        "/pools/running_requests",
        "/pools/connecting_connections",
        "/pools/active_connections",
    ];
    let counts = ZERO.iter().map(|path| {
        let count = snapshot.pointer(path).and_then(serde_json::Value::as_u64);
        (path, count.unwrap_or_else(|| panic!("{path} is missing in {snapshot}")))
    });
    counts.filter(|(_, count)| *count > 0).map(|(path, count)| format!("{path} {count}")).collect()
}
