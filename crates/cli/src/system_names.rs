//! Names of files and folders that operating systems and storage devices add to folders of data.

/// Names that macOS, Windows, Synology and QNAP devices, Linux file systems and Python add to folders.
const SYSTEM_NAMES: [&str; 13] = [
    "__MACOSX",
    "__pycache__",
    "@eaDir",
    "#recycle",
    "#snapshot",
    "@Recycle",
    "@Recently-Snapshot",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
    "Thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
];

/// Whether a file or folder is not data: it is hidden, as `.DS_Store` is, or it was added by a system.
pub(crate) fn is_system_name(name: &str) -> bool {
    // Ignores the case, which on FAT and NTFS depends on the program that created the file.
    name.starts_with('.') || SYSTEM_NAMES.iter().any(|system| system.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_systems_are_recognised_in_upper_and_lower_case() {
        for name in [".DS_Store", "._a.jpg", "@eaDir", "THUMBS.DB", "$Recycle.Bin", "lost+found"] {
            assert!(is_system_name(name), "{name}");
        }
        for name in ["a.jpg", "thumbs", "eaDir", "@home", "_x", "desktop"] {
            assert!(!is_system_name(name), "{name}");
        }
    }
}
