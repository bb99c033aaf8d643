//! The parts of URLs, and which URLs name the same place.

use crate::support::places::places;
use shardstream::SecretUrl;
use shardstream::store::{ObjectUrl, Store};

#[test]
fn urls_have_parts_and_places() {
    let directory = tempfile::tempdir().unwrap();
    let groups = places(&std::env::current_dir().unwrap(), directory.path());
    let rows: Vec<_> = groups
        .iter()
        .enumerate()
        .flat_map(|(group, rows)| rows.iter().map(move |row| (group, row)))
        .collect();
    assert!(rows.len() > 60, "{}", rows.len());
    for (group, row) in &rows {
        let url = ObjectUrl::parse(&row.url);
        assert_eq!(url.scheme(), row.scheme.as_deref(), "{row:?}");
        assert_eq!((url.authority(), url.path()), (&*row.authority, &*row.path), "{row:?}");
        assert_eq!((url.to_string(), format!("{url:?}")), (row.shown.clone(), format!("{:?}", row.shown)));
        assert_eq!(url.to_string(), SecretUrl::from(&row.url).to_string());
        for (other_group, other) in &rows {
            let same = url.is_same_place(&ObjectUrl::parse(&other.url));
            assert_eq!(same, group == other_group, "{} {}", row.url, other.url);
        }
    }
}

#[test]
fn a_file_url_may_be_in_upper_case() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a b.txt");
    std::fs::write(&path, "text").unwrap();
    let url = format!("FILE://{}/a%20b.txt", directory.path().display());
    let store = Store::default();
    assert_eq!(store.open(&url).unwrap().read_all().unwrap(), "text");
    let listed = store.list(&format!("FILE://{}", directory.path().display())).unwrap();
    assert_eq!(listed.len(), 1);
    assert!(ObjectUrl::parse(&listed[0].url).is_same_place(&ObjectUrl::parse(&url)), "{listed:?}");
    assert_eq!(ObjectUrl::parse(&url).local_path().unwrap().as_deref(), Some(&*path));
}
