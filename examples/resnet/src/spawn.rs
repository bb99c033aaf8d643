//! One process for each device: the other form of a job on one host, as `xmp.spawn` has it.
//!
//! The processes are this program again, with a rank in the environment. What they write comes out line by line. When one
//! fails the others are ended, as they would wait for it for ever.

use crate::error::{Error, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Tells a process that it is one of several, and to end with the one that has started it.
const SPAWNED: &str = "RESNET_SPAWNED";

/// The first of the ports by which processes of a TPU host find each other.
const TPU_PORT: usize = 8476;

/// Runs this program `processes` times with the same arguments.
pub fn run(processes: usize, tpu: bool) -> Result<()> {
    let program = std::env::current_exe()?;
    let mut children = Vec::with_capacity(processes);
    let (ended, ends) = channel();
    let mut failed = None;
    thread::scope(|scope| -> Result<()> {
        for rank in 0..processes {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).envs(environment(rank, processes, tpu));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let started = command.spawn();
            let mut child = match started {
                Ok(child) => child,
                Err(error) => {
                    end(&mut children);
                    return Err(error.into());
                }
            };
            let (out, err) = (child.stdout.take(), child.stderr.take());
            let ended: Sender<usize> = ended.clone();
            scope.spawn(move || {
                thread::scope(|both| {
                    both.spawn(|| relay(out, &mut std::io::stdout(), None));
                    both.spawn(|| relay(err, &mut std::io::stderr(), Some(rank)));
                });
                // Both are closed when the process has ended.
                let _ = ended.send(rank);
            });
            children.push(child);
        }
        drop(ended);
        for rank in ends {
            let status = children[rank].wait()?;
            if !status.success() && failed.is_none() {
                failed = Some((rank, status));
                end(&mut children);
            }
        }
        Ok(())
    })?;
    match failed {
        None => Ok(()),
        Some((rank, status)) => Err(Error::Process { rank, processes, status: told(status) }),
    }
}

/// Ends this process when the one that has spawned it is gone, however that came to pass.
pub fn follow_parent() {
    if std::env::var_os(SPAWNED).is_some() {
        thread::spawn(|| {
            // Nothing is ever written there: it ends with the writer.
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(1);
        });
    }
}

/// Whether this process is one of several that were spawned.
pub fn is_spawned() -> bool {
    std::env::var_os(SPAWNED).is_some()
}

fn end(children: &mut [Child]) {
    for child in children {
        // It may have ended by itself.
        let _ = child.kill();
    }
}

fn told(status: ExitStatus) -> String {
    status.to_string()
}

/// Passes lines on whole, so that those of several processes do not mix.
fn relay(from: Option<impl Read>, to: &mut dyn Write, rank: Option<usize>) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        let prefix = rank.map(|rank| format!("[rank {rank}] ")).unwrap_or_default();
        // Nobody reads any more: the processes go on.
        let _ = to.write_all(&[prefix.as_bytes(), &line].concat());
        line.clear();
    }
}

/// What tells a process who it is: our own variables, and on a TPU host those of its runtime, which gives each process one
/// chip.
fn environment(rank: usize, processes: usize, tpu: bool) -> Vec<(&'static str, String)> {
    let mut set = vec![
        (SPAWNED, "1".to_owned()),
        ("SHARDSTREAM_RANK", rank.to_string()),
        ("SHARDSTREAM_WORLD_SIZE", processes.to_string()),
        ("SHARDSTREAM_LOCAL_RANK", rank.to_string()),
        ("SHARDSTREAM_LOCAL_WORLD_SIZE", processes.to_string()),
    ];
    if tpu {
        // Chips of a host stand in a grid of two columns.
        let bounds = if processes == 1 { "1,1,1".into() } else { format!("2,{},1", processes / 2) };
        let address = |rank| format!("localhost:{}", TPU_PORT + rank);
        set.extend([
            ("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1".into()),
            ("TPU_PROCESS_BOUNDS", bounds),
            ("TPU_PROCESS_ADDRESSES", (0..processes).map(address).collect::<Vec<_>>().join(",")),
            ("TPU_PROCESS_PORT", (TPU_PORT + rank).to_string()),
            ("TPU_VISIBLE_CHIPS", rank.to_string()),
            ("CLOUD_TPU_TASK_ID", rank.to_string()),
            // libtpu takes one process of a machine unless it is told; these have a chip each.
            ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1".into()),
        ]);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::Topology;

    #[test]
    fn each_process_is_told_its_rank() {
        for tpu in [false, true] {
            let set = environment(3, 4, tpu);
            let value = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            let topology = Topology::detect_from(value).unwrap();
            assert_eq!((topology.rank(), topology.world_size()), (3, 4));
            assert_eq!(topology.local_rank(), Some(3));
            assert_eq!(value("TPU_VISIBLE_CHIPS").is_some(), tpu);
        }
        let set = environment(1, 4, true);
        let value = |name: &str| set.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert_eq!(value("TPU_PROCESS_BOUNDS"), "2,2,1");
        assert_eq!(
            value("TPU_PROCESS_ADDRESSES"),
            "localhost:8476,localhost:8477,localhost:8478,localhost:8479"
        );
        assert_eq!(value("TPU_PROCESS_PORT"), "8477");
    }

    #[test]
    fn lines_come_whole() {
        let mut out = Vec::new();
        relay(Some(&b"one\ntwo"[..]), &mut out, Some(2));
        assert_eq!(out, b"[rank 2] one\n[rank 2] two");
    }
}
