//! The address of rank 0, from the command line or from the launcher's environment.

use super::RendezvousError;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// A host (name or IP address) and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: String,
    /// The port, at least 1.
    pub port: u16,
}

/// The range of ports for Slurm jobs. The port of a job follows from the job's number.
const SLURM_PORTS: std::ops::Range<u64> = 61_440..65_536;

impl Address {
    /// Reads the address from the first of these sources that is set in the environment:
    /// `SHARDSTREAM_COORDINATOR`; torchrun's `MASTER_ADDR` and `MASTER_PORT`; the first host of the Slurm
    /// step, with a port that follows from the numbers of job and step.
    pub fn detect(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, RendezvousError> {
        let variable = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        if let Some(coordinator) = variable("SHARDSTREAM_COORDINATOR") {
            return coordinator.parse().map(Some);
        }
        if let (Some(host), Some(port)) = (variable("MASTER_ADDR"), variable("MASTER_PORT")) {
            let address: Self = format!("{}:{port}", bracketed(&host)).parse()?;
            // If torchrun's own store uses the port, the server of this program uses the next port.
            let is_used = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|store| store == "True");
            let port = address
                .port
                .checked_add(is_used.into())
                .ok_or(RendezvousError::Address(address.to_string()))?;
            return Ok(Some(Self { port, ..address }));
        }
        let number = |name: &str| variable(name)?.parse::<u64>().ok();
        let (Some(step), Some(job)) = (number("SLURM_STEP_ID"), number("SLURM_JOB_ID")) else {
            return Ok(None);
        };
        let hosts = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST"));
        let Some(host) = hosts.and_then(|hosts| first_host(&hosts)) else { return Ok(None) };
        // The offset depends on the step too, since several steps of a job may run at the same time.
        let offset = job.wrapping_add(step) % (SLURM_PORTS.end - SLURM_PORTS.start);
        Ok(u16::try_from(SLURM_PORTS.start + offset).ok().map(|port| Self { host, port }))
    }
}

/// A token that identifies a job: a hash of the first of these variables that is set:
/// `SHARDSTREAM_JOB_TOKEN`; Slurm's numbers of job, step and restart; torchrun's run id and restart count.
pub fn token(lookup: impl Fn(&str) -> Option<String>) -> String {
    let sources = [
        ["SHARDSTREAM_JOB_TOKEN"].as_slice(),
        &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
        &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
    ];
    let mut text = String::new();
    for names in sources {
        let values: Vec<String> = names.iter().map(|name| lookup(name).unwrap_or_default()).collect();
        if !values[0].is_empty() {
            text = values.join("/");
            break;
        }
    }
    crate::hex(&Sha256::digest(text))
}

impl FromStr for Address {
    type Err = RendezvousError;

    fn from_str(text: &str) -> Result<Self, RendezvousError> {
        let wrong = || RendezvousError::Address(text.into());
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(wrong)?,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(wrong());
        }
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", bracketed(&self.host), self.port)
    }
}

/// Puts an IPv6 address into brackets, since it contains colons.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

/// The first host of a list such as `gpu[003-005,008],login1` or `rack[0-1]_blade[4-41]`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find([',', '[']).unwrap_or(rest.len());
        host += &rest[..end];
        rest = &rest[end..];
        let Some(numbers) = rest.strip_prefix('[') else { break };
        host += &numbers[..numbers.find(['-', ',', ']'])?];
        rest = &numbers[numbers.find(']')? + 1..];
    }
    if host.is_empty() { None } else { Some(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(environment: &str) -> Result<Option<String>, RendezvousError> {
        let get = |name: &str| {
            let pairs = environment.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.filter(|(n, _)| *n == name).map(|(_, value)| value.to_owned()).next()
        };
        Ok(Address::detect(get)?.map(|address| address.to_string()))
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, host, port) in
            [("gpu1:1234", "gpu1", 1234), ("10.0.0.1:1", "10.0.0.1", 1), ("[fe80::1]:80", "fe80::1", 80)]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), text);
        }
        for wrong in
            ["", "gpu1", "gpu1:", ":80", "gpu1:0", "gpu1:65536", "fe80::1:80", "[fe80::1:80", "a/b:1"]
        {
            assert!(wrong.parse::<Address>().unwrap_err().to_string().contains("HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn the_address_is_read_from_the_launcher_s_environment() {
        let address = |environment: &str| detect(environment).unwrap();
        assert_eq!(address(""), None);
        let torchrun = "MASTER_ADDR=gpu1 MASTER_PORT=29500";
        assert_eq!(address(torchrun).unwrap(), "gpu1:29500");
        assert_eq!(address(&format!("{torchrun} TORCHELASTIC_USE_AGENT_STORE=True")).unwrap(), "gpu1:29501");
        assert_eq!(address("MASTER_ADDR=::1 MASTER_PORT=5").unwrap(), "[::1]:5");
        let slurm = "SLURM_JOB_ID=4097 SLURM_STEP_ID=0 SLURM_JOB_NODELIST=gpu[007-009],x";
        assert_eq!(address(slurm).unwrap(), "gpu007:61441");
        assert_eq!(address(&slurm.replace("STEP_ID=0", "STEP_ID=2")).unwrap(), "gpu007:61443");
        assert_eq!(address(&format!("{slurm} {torchrun}")).unwrap(), "gpu1:29500");
        assert_eq!(address(&format!("{slurm} {torchrun} SHARDSTREAM_COORDINATOR=h:7")).unwrap(), "h:7");
        // In the batch script itself there is no SLURM_STEP_ID, and so no address.
        assert_eq!(address("SLURM_JOB_ID=4097 SLURM_JOB_NODELIST=gpu1"), None);
        assert!(detect("SHARDSTREAM_COORDINATOR=h").is_err());
        assert!(detect("MASTER_ADDR=h MASTER_PORT=x").is_err());
    }

    #[test]
    fn the_first_host_of_a_slurm_list_is_found() {
        for (list, host) in [
            ("a", "a"),
            ("a1,a2", "a1"),
            ("n[01-04]", "n01"),
            ("n[5,7]", "n5"),
            ("n[12]", "n12"),
            ("n[1-2]-ib", "n1-ib"),
            ("rack[0-1]_blade[4-41],x", "rack0_blade4"),
        ] {
            assert_eq!(first_host(list).unwrap(), host, "{list}");
        }
        assert_eq!([first_host(""), first_host("n[")], [None, None]);
    }

    #[test]
    fn different_jobs_steps_and_restarts_have_different_tokens() {
        let with = |variable: &'static str, value: &'static str| {
            token(move |name| if name == variable { Some(value.to_owned()) } else { None })
        };
        assert_ne!(with("SLURM_JOB_ID", "a"), with("SLURM_JOB_ID", "b"));
        assert_eq!(with("OTHER", "a").len(), 64);
        let slurm = |step: &'static str, restart: &'static str| {
            token(move |name| match name {
                "SLURM_JOB_ID" => Some("7".into()),
                "SLURM_STEP_ID" => Some(step.into()),
                "SLURM_RESTART_COUNT" => Some(restart.into()),
                _ => None,
            })
        };
        assert_eq!(slurm("0", "0"), slurm("0", "0"));
        assert!(slurm("0", "0") != slurm("1", "0") && slurm("0", "0") != slurm("0", "1"));
    }
}
