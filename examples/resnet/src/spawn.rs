//! Starts one process for each device of a host, as `xmp.spawn` does.
//!
//! The processes run this program again, with a rank in the environment. Their output is passed on line by
//! line. When one fails the others are killed, since they would wait for it forever.

use crate::error::{Error, Result};
use crate::exit_code::{EXIT_HUNG, EXIT_OUTAGE, EXIT_STOPPED, EXIT_TARGET, EXIT_USAGE};
use crate::signals::Signals;
use crate::stop::{self, Stop};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Set for a process that was spawned, which ends when its parent ends.
const SPAWNED: &str = "RESNET_SPAWNED";

/// First of the ports through which the processes of a TPU host connect.
const TPU_PORT: usize = 8476;

/// The directory in which spawned processes leave notes for each other.
const SHARED_DIR: &str = "RESNET_SHARED_DIR";

/// The byte that the parent writes to a process to request_stop it to stop.
const STOP: u8 = b's';

/// The number of requests to stop, and the standard inputs of the processes that get them.
#[derive(Default)]
struct StopRequests {
    received: usize,
    inputs: Vec<ChildStdin>,
}

impl StopRequests {
    /// Adds a process, which also gets the requests from before its start.
    fn add(&mut self, input: Option<ChildStdin>) {
        let Some(mut input) = input else { return };
        (0..self.received).for_each(|_| request_stop(&mut input));
        self.inputs.push(input);
    }
}

/// Sends a process a request to stop.
fn request_stop(input: &mut ChildStdin) {
    // It may have ended by itself.
    let _ = input.write_all(&[STOP]);
}

/// Runs this program `processes` times with the same arguments, and `more` in the environment. Passes the
/// first signal on; the second one ends all processes.
pub fn run(processes: usize, tpu: bool, more: &[(&'static str, String)], signals: Signals) -> Result<()> {
    let program = std::env::current_exe()?;
    let shared_dir = tempfile::tempdir()?;
    let requests = Arc::new(Mutex::new(StopRequests::default()));
    let to = requests.clone();
    signals.listen(move |signal| {
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        to.received += 1;
        to.inputs.iter_mut().for_each(request_stop);
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
                    kill_all(&mut children);
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
                // Both streams are closed, so the process has ended.
                let _ = ended.send(rank);
            });
            children.push(child);
        }
        drop(ended);
        for rank in ends {
            let status = children[rank].wait()?;
            let ended_well = |status: ExitStatus| status.success() || deliberate_exit_code(status).is_some();
            if !ended_well(status) && failed.is_none_or(|(_, before)| ended_well(before)) {
                failed = Some((rank, status));
                kill_all(&mut children);
            } else if !status.success() && failed.is_none() {
                failed = Some((rank, status));
            }
        }
        Ok(())
    })?;
    match failed {
        None => Ok(()),
        Some((rank, status)) => {
            let told = [EXIT_HUNG, EXIT_OUTAGE, EXIT_USAGE];
            let told = told.into_iter().find(|code| status.code() == Some((*code).into()));
            let code = deliberate_exit_code(status).or(told);
            Err(Error::Process { rank, processes, status: status.to_string(), code })
        }
    }
}

/// Ends this process when its parent is gone, for whatever reason, and stops the training at the parent's
/// request.
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
        // The input ends when the parent ends.
        stop::end("the parent process is gone", 1);
    });
}

/// The directory in which spawned processes leave notes for each other.
pub fn shared_dir() -> Option<String> {
    std::env::var(SHARED_DIR).ok().filter(|_| is_spawned())
}

/// Whether this process was spawned.
pub fn is_spawned() -> bool {
    std::env::var_os(SPAWNED).is_some()
}

fn kill_all(children: &mut [Child]) {
    for child in children {
        // It may have ended by itself.
        let _ = child.kill();
    }
}

/// The exit code of a process that ended on purpose, as the others do.
fn deliberate_exit_code(status: ExitStatus) -> Option<u8> {
    let code = u8::try_from(status.code()?).ok()?;
    matches!(code, EXIT_STOPPED | EXIT_TARGET).then_some(code)
}

/// Passes on whole lines, so that the lines of several processes do not mix.
fn relay(from: Option<impl Read>, to: &mut dyn Write, rank: Option<usize>) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        let prefix = rank.map(|rank| format!("[rank {rank}] ")).unwrap_or_default();
        // The processes continue even if nobody reads their output.
        let _ = to.write_all(&[prefix.as_bytes(), &line].concat());
        line.clear();
    }
}

/// The environment of a process: our own variables, and on a TPU host those of its runtime, which gives each
/// process one chip.
fn environment(rank: usize, processes: usize, tpu: bool) -> Vec<(&'static str, String)> {
    let mut set = vec![
        (SPAWNED, "1".to_owned()),
        ("SHARDSTREAM_RANK", rank.to_string()),
        ("SHARDSTREAM_WORLD_SIZE", processes.to_string()),
        ("SHARDSTREAM_LOCAL_RANK", rank.to_string()),
        ("SHARDSTREAM_LOCAL_WORLD_SIZE", processes.to_string()),
    ];
    if tpu {
        // The chips of a host form a grid of two columns.
        let bounds = if processes == 1 { "1,1,1".into() } else { format!("2,{},1", processes / 2) };
        let address = |rank| format!("localhost:{}", TPU_PORT + rank);
        set.extend([
            ("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1".into()),
            ("TPU_PROCESS_BOUNDS", bounds),
            ("TPU_PROCESS_ADDRESSES", (0..processes).map(address).collect::<Vec<_>>().join(",")),
            ("TPU_PROCESS_PORT", (TPU_PORT + rank).to_string()),
            ("TPU_VISIBLE_CHIPS", rank.to_string()),
            ("CLOUD_TPU_TASK_ID", rank.to_string()),
            // By default libtpu allows one process on a machine; these have a chip each.
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
