//! Names of members, and the keys and fields that they stand for.

/// A member's name, and its key and field; `None` if the member is skipped.
pub type Row = (&'static str, Option<(&'static str, &'static str)>);

/// Names that this crate and Python's `webdataset` split alike.
pub const ALIKE: &[Row] = &[
    ("a.jpg", Some(("a", "jpg"))),
    ("a.JPG", Some(("a", "jpg"))),
    ("a.Seg.PNG", Some(("a", "seg.png"))),
    ("A.txt", Some(("A", "txt"))),
    ("dir/a.seg.jpg", Some(("dir/a", "seg.jpg"))),
    ("a/b/c/d.txt", Some(("a/b/c/d", "txt"))),
    ("./a.jpg", Some(("./a", "jpg"))),
    ("./d/a.jpg", Some(("./d/a", "jpg"))),
    ("a.b/c.jpg", Some(("a.b/c", "jpg"))),
    (".d/c.jpg", Some((".d/c", "jpg"))),
    ("22.0/1.1.png", Some(("22.0/1", "1.png"))),
    ("/abs/a.JPG", Some(("/abs/a", "jpg"))),
    ("../x/y.z", Some(("../x/y", "z"))),
    ("a.", Some(("a", ""))),
    ("a..jpg", Some(("a", ".jpg"))),
    ("a b.t x t", Some(("a b", "t x t"))),
    ("é/猫.ÀÉ", Some(("é/猫", "àé"))),
    ("a.ǅ", Some(("a", "ǆ"))),
    ("a\\b.txt", Some(("a\\b", "txt"))),
    ("a", None),
    ("a.b/c", None),
    (".hidden", None),
    ("._a.jpg", None),
    ("..x", None),
    // Metadata.
    ("__index__", None),
    ("__x__/y.txt", None),
    ("____", None),
    ("__a.b__", None),
    ("__a.b__/c.txt", None),
    ("__meta__.json", Some(("__meta__", "json"))),
    ("d/__meta__/x.txt", Some(("d/__meta__/x", "txt"))),
    ("__a.txt", Some(("__a", "txt"))),
];

/// Hidden files. `webdataset` makes them fields of a sample that is named like the directory; this crate
/// skips them.
pub const HIDDEN: &[Row] = &[
    ("dir/.hidden.txt", Some(("dir/", "hidden.txt"))),
    ("dir/._a.jpg", Some(("dir/", "_a.jpg"))),
    ("d/..x", Some(("d/", ".x"))),
];
