//! What a path means.

use http::Uri;
use http::uri::PathAndQuery;

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `/http/{provider}/{path}` or `/http/{provider}@{slot}/{path}`.
    Provider {
        name: &'a str,
        /// The place of the origin in the provider's configuration.
        slot: u16,
        /// What the origin is asked for.
        rest: PathAndQuery,
    },
    /// `/healthz`
    Health,
    /// `/snapshot`
    Snapshot,
    /// `/figures`
    Figures,
    /// `/`
    Page,
    Unknown,
}

impl<'a> Route<'a> {
    pub(super) fn of(uri: &'a Uri) -> Self {
        match uri.path() {
            "/" => Self::Page,
            "/healthz" => Self::Health,
            "/snapshot" => Self::Snapshot,
            "/figures" => Self::Figures,
            path => path
                .strip_prefix("/http/")
                .and_then(|rest| provider(rest, uri.query()))
                .unwrap_or(Self::Unknown),
        }
    }
}

fn provider<'a>(rest: &'a str, query: Option<&str>) -> Option<Route<'a>> {
    let (segment, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (name, slot) = match segment.split_once('@') {
        None => (segment, 0),
        // Digits only: numbers are parsed with a sign too.
        Some((name, slot)) if slot.bytes().all(|byte| byte.is_ascii_digit()) => (name, slot.parse().ok()?),
        Some(_) => return None,
    };
    if name.is_empty() {
        return None;
    }
    let path = if path.is_empty() { "/" } else { path };
    let rest = match query {
        None => PathAndQuery::try_from(path),
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
    };
    Some(Route::Provider { name, slot, rest: rest.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_place() {
        let to = |name, slot, rest| Route::Provider { name, slot, rest: PathAndQuery::from_static(rest) };
        let routes = [
            ("/", Route::Page),
            ("/?x", Route::Page),
            ("/healthz", Route::Health),
            ("/snapshot", Route::Snapshot),
            ("/figures", Route::Figures),
            ("/http/demo", to("demo", 0, "/")),
            ("/http/demo/", to("demo", 0, "/")),
            ("/http/demo?a=/b", to("demo", 0, "/?a=/b")),
            ("/http/demo/a/b%2Fc?x=1&y", to("demo", 0, "/a/b%2Fc?x=1&y")),
            ("/http/demo//a", to("demo", 0, "//a")),
            ("/http/demo@3/a", to("demo", 3, "/a")),
            ("/http/demo@x/a", Route::Unknown),
            ("/http/demo@65536/a", Route::Unknown),
            ("/http/demo@+0/a", Route::Unknown),
            ("/http/demo@/a", Route::Unknown),
            ("/http/", Route::Unknown),
            ("/http//a", Route::Unknown),
            ("/http", Route::Unknown),
            ("/HEALTHZ", Route::Unknown),
            ("/healthz/", Route::Unknown),
        ];
        for (path, route) in routes {
            let uri = path.parse().expect("a path");
            assert_eq!(Route::of(&uri), route, "{path}");
        }
    }
}
