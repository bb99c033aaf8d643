//! Reads the files `~/.aws/config` and `~/.aws/credentials`, which have sections of settings.

use super::values::{home, unusable, variable};
use crate::{Error, Result};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::io::ErrorKind as IoErrorKind;
use std::path::PathBuf;

type Section = HashMap<String, String>;

/// The variables that name a profile or a file of profiles.
const NAMES: [&str; 4] =
    ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"];

/// The sections of both files.
pub(super) struct Profiles {
    /// The names of the files, for messages.
    config: String,
    credentials: String,
    /// The settings of each profile, from both files. Settings in `credentials` take precedence.
    profiles: HashMap<String, Section>,
    sessions: HashMap<String, Section>,
}

/// One profile.
pub(super) struct Profile<'a> {
    pub(super) name: String,
    files: &'a Profiles,
    values: &'a Section,
}

impl Profiles {
    /// Reads the files that the environment names, or else the files in the home directory. A file that does
    /// not exist counts as empty.
    pub(super) fn read() -> Result<Self> {
        let is_named = NAMES.into_iter().any(|name| variable(name).is_some());
        let file = |name: &str, file: &str| {
            let in_home = || home().map(|home| home.join(".aws").join(file));
            match variable(name).map(PathBuf::from).or_else(in_home) {
                Some(path) => {
                    let shown = path.display().to_string();
                    let text = text_of(fs::read(path), &shown, is_named)?;
                    Ok((shown, text))
                }
                None => Ok::<_, Error>((format!("~/.aws/{file}"), String::new())),
            }
        };
        let (config, in_config) = file("AWS_CONFIG_FILE", "config")?;
        let (credentials, in_credentials) = file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        let mut files = Profiles { config, credentials, profiles: HashMap::new(), sessions: HashMap::new() };
        for (title, section) in sections(&in_config) {
            match title.split_once(char::is_whitespace).map(|(kind, name)| (kind, unquoted(name))) {
                Some(("profile", name)) => files.profiles.entry(name).or_default().extend(section),
                Some(("sso-session", name)) => files.sessions.entry(name).or_default().extend(section),
                None if title == "default" => files.profiles.entry(title).or_default().extend(section),
                _ => {}
            }
        }
        for (title, section) in sections(&in_credentials) {
            files.profiles.entry(unquoted(&title)).or_default().extend(section);
        }
        Ok(files)
    }

    pub(super) fn get(&self, name: &str) -> Option<Profile<'_>> {
        let values = self.profiles.get(name)?;
        Some(Profile { name: name.to_owned(), files: self, values })
    }

    /// The error for a profile that must exist. `why` says what refers to the profile.
    pub(super) fn missing(&self, name: &str, why: &str) -> Error {
        let (config, credentials) = (&self.config, &self.credentials);
        unusable(format!("there is no profile `{name}` in {config} or {credentials}: {why}"))
    }
}

impl Profile<'_> {
    pub(super) fn get(&self, setting: &str) -> Option<String> {
        self.values.get(setting).filter(|value| !value.is_empty()).cloned()
    }

    pub(super) fn text(&self, setting: &str) -> Result<String> {
        self.get(setting).ok_or_else(|| self.wrong(setting, "is missing"))
    }

    /// A setting of SSO: from the section of the profile's `sso_session`, or from the profile itself.
    pub(super) fn sso_setting(&self, setting: &str) -> Result<String> {
        let Some(session) = self.get("sso_session") else { return self.text(setting) };
        let section = self.files.sessions.get(&session);
        let section =
            section.ok_or_else(|| self.wrong("sso_session", "names a section that does not exist"))?;
        let value = section.get(setting).filter(|value| !value.is_empty());
        value.cloned().ok_or_else(|| self.wrong("sso_session", &format!("has no `{setting}` in its section")))
    }

    /// The error for a setting, which the message names.
    pub(super) fn wrong(&self, setting: &str, what: &str) -> Error {
        unusable(format!("{}, the setting `{setting}` {what}", self.place()))
    }

    /// The profile and the files, for messages.
    pub(super) fn place(&self) -> String {
        let (config, credentials) = (&self.files.config, &self.files.credentials);
        format!("the profile `{}` of {config} and {credentials}", self.name)
    }
}

/// The text of a file. `is_named` says whether the environment names a profile or a file of profiles.
fn text_of(bytes: io::Result<Vec<u8>>, path: &str, is_named: bool) -> Result<String> {
    match bytes {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        // `NotADirectory`: there is a file in place of the directory `.aws`.
        Err(error) if matches!(error.kind(), IoErrorKind::NotFound | IoErrorKind::NotADirectory) => {
            Ok(String::new())
        }
        // The home directory may belong to another user.
        Err(error) if error.kind() == IoErrorKind::PermissionDenied && !is_named => Ok(String::new()),
        Err(error) => Err(unusable(format!("{path} cannot be read: {error}"))),
    }
}

/// The sections of a file, in order. Indented lines, which are nested settings, are left out.
fn sections(text: &str) -> Vec<(String, Section)> {
    let mut sections: Vec<(String, Section)> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) || line.trim().is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            // A title that is not closed becomes the empty name, which no lookup uses.
            let title = rest.split_once(']').map_or("", |(title, _)| title.trim());
            sections.push((title.to_owned(), Section::new()));
        } else if let Some((name, value)) = line.split_once('=')
            && !line.starts_with([' ', '\t'])
            && let Some((_, section)) = sections.last_mut()
        {
            section.insert(name.trim().to_ascii_lowercase(), without_comment(value).trim().to_owned());
        }
    }
    sections
}

/// A value without its comment. A comment begins with `#` or `;` after a space.
fn without_comment(value: &str) -> &str {
    let comment = value.match_indices(['#', ';']).find(|(at, _)| value[..*at].ends_with([' ', '\t']));
    comment.map_or(value, |(at, _)| &value[..at])
}

fn unquoted(name: &str) -> String {
    name.trim().trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read_as_by_the_aws_cli() {
        let text = "outside = 1\n# comment\n[default]\nRegion=eu-west-1 ; comment\nkey = a#b;c=d==\n\
                    s3 =\n  max_queue_size = 1\n; comment\n\n[profile  \"a b\"]\r\nrole_arn = x\r\n\
                    [sso-session s]\nempty =\n[open\nx = 1\n";
        let found = sections(text);
        let titles: Vec<&str> = found.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["default", "profile  \"a b\"", "sso-session s", ""]);
        let get = |section: usize, name: &str| found[section].1.get(name).map(String::as_str);
        assert_eq!(get(0, "region"), Some("eu-west-1"));
        assert_eq!(get(0, "key"), Some("a#b;c=d=="));
        assert_eq!((get(0, "s3"), get(0, "max_queue_size"), get(0, "outside")), (Some(""), None, None));
        assert_eq!((get(1, "role_arn"), get(2, "empty")), (Some("x"), Some("")));
        assert_eq!(unquoted(" \"a b\""), "a b");
    }

    #[test]
    fn an_unreadable_file_is_an_error_if_the_environment_names_it() {
        for (kind, is_named, expected) in [
            (IoErrorKind::NotFound, true, true),
            (IoErrorKind::PermissionDenied, false, true),
            (IoErrorKind::PermissionDenied, true, false),
            (IoErrorKind::IsADirectory, false, false),
        ] {
            let text = text_of(Err(kind.into()), "config", is_named);
            assert_eq!(text.is_ok_and(|text| text.is_empty()), expected, "{kind:?} {is_named}");
        }
    }
}
