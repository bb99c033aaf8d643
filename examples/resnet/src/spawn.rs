//! One process for each device: the other form of a job on one host, as `xmp.spawn` has it.
//!
//! The processes are this program again, with a rank in the environment. What they write comes out line by
//! line. When one fails the others are ended, as they would wait for it for ever.

use crate::error::{EXIT_TARGET, Error, Result};
use crate::signals::Signals;
use crate::stop::{self, EXIT_STOPPED, Stop};
use crate::watchdog::EXIT_HUNG;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Tells a process that it is one of several, and to end with the one that has started it.
const SPAWNED: &str = "RESNET_SPAWNED";

/// The first of the ports by which processes of a TPU host find each other.
const TPU_PORT: usize = 8476;

/// The directory in which spawned processes leave notes for each other.
const SHARED_DIR: &str = "RESNET_SHARED_DIR";

/// What the parent writes to a process to ask it to stop.
const STOP: u8 = b's';

/// The requests to stop that were received, and the inputs of the processes that they are passed on to.
#[derive(Default)]
struct Requests {
    received: usize,
    inputs: Vec<ChildStdin>,
}

impl Requests {
    /// Adds a process, which also gets the requests that came before it was started.
    fn add(&mut self, input: Option<ChildStdin>) {
        let Some(mut input) = input else { return };
        (0..self.received).for_each(|_| ask(&mut input));
        self.inputs.push(input);
    }
}

/// Asks a process to stop.
fn ask(input: &mut ChildStdin) {
    // It may have ended by itself.
    let _ = input.write_all(&[STOP]);
}

/// Runs this program `processes` times with the same arguments, and `more` in the environment. The first
/// signal is passed on; with the second one all end.
pub fn run(processes: usize, tpu: bool, more: &[(&'static str, String)], signals: Signals) -> Result<()> {
    let program = std::env::current_exe()?;
    let shared_dir = tempfile::tempdir()?;
    let requests = Arc::new(Mutex::new(Requests::default()));
    let to = requests.clone();
    signals.listen(move |signal| {
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        to.received += 1;
        to.inputs.iter_mut().for_each(ask);
        if to.received > 1 {
            stop::end("a second signal", 128 + signal);
        }
    })?;
    let mut children = Vec::with_capacity(processes);
    let (ended, ends) = channel();
    let mut failed = None;
    thread::scope(|scope| -> Result<()> {
        for rank in 0..processes {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).envs(environment(rank, processes, tpu));
            command.env(SHARED_DIR, shared_dir.path()).envs(more.iter().cloned());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let started = command.spawn();
            let mut child = match started {
                Ok(child) => child,
                Err(error) => {
                    end(&mut children);
                    return Err(error.into());
                }
            };
            requests.lock().unwrap_or_else(PoisonError::into_inner).add(child.stdin.take());
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
            let ended_well = |status: ExitStatus| status.success() || deliberate(status).is_some();
            if !ended_well(status) && failed.is_none_or(|(_, before)| ended_well(before)) {
                failed = Some((rank, status));
                end(&mut children);
            } else if !status.success() && failed.is_none() {
                failed = Some((rank, status));
            }
        }
        Ok(())
    })?;
    match failed {
        None => Ok(()),
        Some((rank, status)) => {
            let hung = Some(EXIT_HUNG).filter(|code| status.code() == Some((*code).into()));
            let code = deliberate(status).or(hung);
            Err(Error::Process { rank, processes, status: status.to_string(), code })
        }
    }
}

/// Ends this process when the one that has spawned it is gone, however that came to pass, and stops when it
/// says so.
pub fn follow_parent(stop: Stop) {
    if !is_spawned() {
        return;
    }
    thread::spawn(move || {
        let mut requests = 0;
        while matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
            requests += 1;
            if requests > 1 {
                stop::end("a second signal", i32::from(EXIT_STOPPED));
            }
            stop.request();
        }
        // The end of the input is that of the writer.
        stop::end("the process that has started this one is gone", 1);
    });
}

/// Where spawned processes leave notes for each other.
pub fn shared_dir() -> Option<String> {
    std::env::var(SHARED_DIR).ok().filter(|_| is_spawned())
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

/// The exit code of a process that ended in good order, as the others do.
fn deliberate(status: ExitStatus) -> Option<u8> {
    let code = u8::try_from(status.code()?).ok()?;
    matches!(code, EXIT_STOPPED | EXIT_TARGET).then_some(code)
}

/// Passes lines on whole, so that those of several processes do not mix.
fn relay(from: Option<impl Read>, to: &mut dyn Write, rank: Option<usize>) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        let prefix = rank.map(|rank| format!("[rank {rank}] ")).unwrap_or_default();
        // Nobody reads any more: the processes continue.
        let _ = to.write_all(&[prefix.as_bytes(), &line].concat());
        line.clear();
    }
}

/// What tells a process who it is: our own variables, and on a TPU host those of its runtime, which gives
/// each process one chip.
fn environment(rank: usize, processes: usize, tpu: bool) -> Vec<(&'static str, String)> {
    let mut set = vec![
        (SPAWNED, "1".to_owned()),
        ("SHARDSTREAM_RANK", rank.to_string()),
        ("SHARDSTREAM_WORLD_SIZE", processes.to_string()),
        ("SHARDSTREAM_LOCAL_RANK", rank.to_string()),
        ("SHARDSTREAM_LOCAL_WORLD_SIZE", processes.to_string()),
    ];
    if tpu {
        // Chips of a host are in a grid of two columns.
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
