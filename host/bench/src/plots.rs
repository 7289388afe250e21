//! Plots of the figures that were taken at several sizes, as SVG.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::figure::Figure;
use crate::table::Section;

const SIZE: (u32, u32) = (640, 400);

/// Draws each series of figures into a file of its own in a directory.
pub(crate) fn draw(directory: &Path, sections: &[Section]) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut series: BTreeMap<&str, Vec<&Figure>> = BTreeMap::new();
    for figure in sections.iter().flat_map(|section| &section.figures) {
        if figure.at.is_some() {
            series.entry(&figure.name).or_default().push(figure);
        }
    }
    for (name, figures) in series {
        let path = directory.join(file_name(name));
        plot(&path, name, &figures).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// `growth: PodGC's pass` becomes `growth-podgcs-pass.svg`.
fn file_name(name: &str) -> String {
    let plain = name.to_lowercase().replace('\'', "");
    let words = plain.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-") + ".svg"
}

/// Both axes are logarithmic: what grows in proportion is a line at 45 degrees.
fn plot(path: &Path, name: &str, figures: &[&Figure]) -> Result<(), Box<dyn std::error::Error>> {
    let points = figures.iter().filter_map(|figure| {
        let at = figure.at.as_ref()?;
        Some((at.value, figure.value))
    });
    let points: Vec<(f64, f64)> = points.collect();
    let (x, y) = (
        points.iter().map(|point| point.0),
        points.iter().map(|point| point.1),
    );
    let axis = figures.first().and_then(|figure| figure.at.as_ref());
    let (x_name, unit) = (
        axis.map_or("", |at| at.unit.as_str()),
        figures.first().map_or("", |figure| figure.unit.as_str()),
    );
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(name, ("sans-serif", 18))
        .margin(12)
        .margin_right(40)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(decades(x).log_scale(), decades(y).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(x_name)
        .y_desc(unit)
        .x_label_formatter(&|value| format!("{value}"))
        .y_label_formatter(&|value| format!("{value}"))
        .draw()?;
    chart.draw_series(LineSeries::new(points.iter().copied(), &BLUE))?;
    chart.draw_series(
        points
            .iter()
            .map(|point| Circle::new(*point, 3, BLUE.filled())),
    )?;
    root.present()?;
    Ok(())
}

/// The powers of ten around some values.
fn decades(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min).max(1e-6);
    let most = values.fold(0.0, f64::max).max(least);
    10_f64.powf(least.log10().floor())..10_f64.powf((most * 1.001).log10().ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_becomes_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let figure =
            |at: f64, value| Figure::new("growth: PodGC's pass", value, "ms").at(at, "pods");
        let section = Section {
            subject: "growth".to_owned(),
            figures: vec![
                figure(1e3, 0.2),
                figure(1e5, 11.0),
                Figure::new("other", 1.0, "s"),
            ],
            failure: None,
        };
        draw(directory.path(), &[section]).unwrap();
        let files = std::fs::read_dir(directory.path()).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(files, [directory.path().join("growth-podgcs-pass.svg")]);
        let svg = std::fs::read_to_string(&files[0]).unwrap();
        for text in [
            "growth: PodGC&apos;s pass",
            "pods",
            "ms",
            "<polyline",
            "100000",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
