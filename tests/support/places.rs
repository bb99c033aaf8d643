//! The table of places in `tests/data/places.json`: groups of URLs and paths, where each group names one
//! place.
//!
//! A row has a URL; its scheme, authority and path; and the form that is shown, if it differs from the URL.
//! `CWD` stands for the working directory, and `LINKS` for a directory in which `link` is a link to `real`,
//! and `deep` to `real/below`.

use std::fs;
use std::path::Path;

/// A URL or path, and its parts.
#[derive(Debug, Clone)]
pub struct PlaceRow {
    pub url: String,
    pub scheme: Option<String>,
    pub authority: String,
    pub path: String,
    pub shown: String,
}

/// Creates `link` and `deep` in the directory `links`, and returns the groups of the table. All URLs of a
/// group name the same place. URLs of different groups name different places.
pub fn places(cwd: &Path, links: &Path) -> Vec<Vec<PlaceRow>> {
    fs::create_dir_all(links.join("real/below")).unwrap();
    std::os::unix::fs::symlink(links.join("real"), links.join("link")).unwrap();
    std::os::unix::fs::symlink(links.join("real/below"), links.join("deep")).unwrap();
    let fill =
        |text: &str| text.replace("CWD", cwd.to_str().unwrap()).replace("LINKS", links.to_str().unwrap());
    let table: serde_json::Value = serde_json::from_str(include_str!("../data/places.json")).unwrap();
    let row = |row: &serde_json::Value| {
        let text = |at: usize| row[at].as_str().map(fill);
        let (url, shown) = (text(0).unwrap(), text(4));
        PlaceRow {
            shown: shown.unwrap_or_else(|| url.clone()),
            url,
            scheme: text(1),
            authority: text(2).unwrap(),
            path: text(3).unwrap(),
        }
    };
    let group = |group: &serde_json::Value| group["urls"].as_array().unwrap().iter().map(row).collect();
    table.as_array().unwrap().iter().map(group).collect()
}
