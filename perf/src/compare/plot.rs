//! The figures as pictures: one per group, and one of all our paths against the best peer.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::measure::Group;
use super::report::judged_peer;

const OURS: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const PEER: RGBColor = RGBColor(0xb0, 0xb0, 0xb0);

/// One bar.
struct Bar {
    name: String,
    value: f64,
    ours: bool,
}

/// Writes all pictures into a folder, which is made if it is not there.
pub(super) fn write(folder: &str, groups: &[Group]) -> Result<(), String> {
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    for group in groups {
        let of = |name: &str, value: f64, ours| Bar { name: name.to_owned(), value, ours };
        let mut bars: Vec<_> = group
            .subjects
            .iter()
            // What only says how good the machine is has no place among things to choose from.
            .filter(|subject| !subject.name.starts_with("control"))
            .map(|subject| {
                let value = if group.is_twice() { subject.of_two() } else { subject.best() };
                of(subject.name, value, subject.ours)
            })
            .filter(|bar| bar.value.is_finite())
            .collect();
        bars.sort_by(|a, b| a.value.total_cmp(&b.value));
        let title = format!("{} (ns, less is better)", group.title);
        draw(&folder.join(format!("{}.svg", group.key)), &title, &bars, None)?;
    }
    let bars: Vec<_> = groups
        .iter()
        .filter_map(|group| {
            let ours = group.subjects.iter().find(|subject| subject.ours)?;
            let peer = judged_peer(group)?;
            let value =
                if group.is_twice() { ours.of_two() / peer.of_two() } else { ours.best() / peer.best() };
            value.is_finite().then(|| Bar {
                name: format!("{} / {}", group.key, peer.name),
                value,
                ours: true,
            })
        })
        .collect();
    draw(
        &folder.join("overview.svg"),
        "time of ours / time of the peer it is judged by (below 1: ours is faster)",
        &bars,
        Some(1.0),
    )
}

fn draw(file: &Path, title: &str, bars: &[Bar], line: Option<f64>) -> Result<(), String> {
    const ROW: i32 = 26;
    const LEFT: i32 = 330;
    const WIDTH: i32 = 820;
    let height = 60 + ROW * bars.len() as i32;
    let longest = bars.iter().map(|bar| bar.value).fold(line.unwrap_or(0.0), f64::max).max(f64::MIN_POSITIVE);
    let across = |value: f64| LEFT + (value / longest * f64::from(WIDTH - LEFT - 90)) as i32;
    let area = SVGBackend::new(file, (WIDTH as u32, height as u32)).into_drawing_area();
    let fail = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    area.fill(&WHITE).map_err(|why| fail(&why))?;
    area.draw(&Text::new(title.to_owned(), (12, 12), text(15))).map_err(|why| fail(&why))?;
    for (row, bar) in bars.iter().enumerate() {
        let top = 42 + ROW * row as i32;
        let colour = if bar.ours { OURS } else { PEER };
        let middle = top + (ROW - 6) / 2;
        area.draw(&Rectangle::new([(LEFT, top), (across(bar.value), top + ROW - 6)], colour.filled()))
            .map_err(|why| fail(&why))?;
        let right = text(13).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(bar.name.clone(), (LEFT - 8, middle), right)).map_err(|why| fail(&why))?;
        let left = text(13).pos(Pos::new(HPos::Left, VPos::Center));
        let value = if line.is_some() { format!("{:.2}", bar.value) } else { format!("{:.1}", bar.value) };
        area.draw(&Text::new(value, (across(bar.value) + 6, middle), left)).map_err(|why| fail(&why))?;
    }
    if let Some(line) = line {
        let x = across(line);
        area.draw(&PathElement::new(vec![(x, 36), (x, height - 12)], BLACK)).map_err(|why| fail(&why))?;
    }
    area.present().map_err(|why| fail(&why))
}
