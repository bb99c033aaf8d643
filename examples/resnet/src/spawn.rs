//! Starts several processes on one host, as `xmp.spawn` does.
//!
//! The processes run this program again, with a rank in the environment. The parent prints their output line
//! by line. If one process fails, the parent kills the other processes, since they would wait forever for the
//! failed process.

use crate::error::{Error, Result};
use crate::exit_code::{EXIT_HUNG, EXIT_OUTAGE, EXIT_STOPPED, EXIT_TARGET, EXIT_USAGE};
use crate::signals::Signals;
use crate::stop::{self, Stop};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The environment variable that is set for spawned processes. A spawned process ends when its parent ends.
const SPAWNED: &str = "RESNET_SPAWNED";

/// First of the ports through which the processes of a TPU host connect.
const TPU_PORT: usize = 8476;

/// The environment variable that names the directory in which spawned processes write notes for each other.
const SHARED_DIR: &str = "RESNET_SHARED_DIR";

/// The byte that the parent writes to a process's standard input as a request to stop.
const STOP: u8 = b's';

/// The requests to stop that the parent passes to its processes.
#[derive(Default)]
struct StopRequests {
    /// Number of signals that the parent has received.
    received: usize,
    /// The standard inputs of the processes.
    inputs: Vec<ChildStdin>,
}

impl StopRequests {
    /// Adds a process, and sends it the requests that were received before its start.
    fn add(&mut self, input: Option<ChildStdin>) {
        let Some(mut input) = input else { return };
        (0..self.received).for_each(|_| request_stop(&mut input));
        self.inputs.push(input);
    }
}

/// Sends a process a request to stop.
fn request_stop(input: &mut ChildStdin) {
    // Writing fails only if the process has already ended; then there is nothing to stop.
    let _ = input.write_all(&[STOP]);
}

/// Runs this program `processes` times with the same arguments, and adds `variables` to the environment. The
/// first signal is passed to the processes; the second signal ends all processes.
pub fn run(
    processes: usize,
    tpu: bool,
    variables: &[(&'static str, String)],
    signals: Signals,
) -> Result<()> {
    let program = std::env::current_exe()?;
    let shared_dir = tempfile::tempdir()?;
    let requests = Arc::new(Mutex::new(StopRequests::default()));
    let requests_of_listener = requests.clone();
    signals.listen(move |signal| {
        let mut requests = requests_of_listener.lock().unwrap_or_else(PoisonError::into_inner);
        requests.received += 1;
        requests.inputs.iter_mut().for_each(request_stop);
        if requests.received > 1 {
            stop::end("a second signal", 128 + signal);
        }
    })?;
    let mut children = Vec::with_capacity(processes);
    let (sender, ended_ranks) = channel();
    let mut failed = None;
    thread::scope(|scope| -> Result<()> {
        for rank in 0..processes {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).envs(environment(rank, processes, tpu));
            command.env(SHARED_DIR, shared_dir.path()).envs(variables.iter().cloned());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    kill_all(&mut children);
                    return Err(error.into());
                }
            };
            requests.lock().unwrap_or_else(PoisonError::into_inner).add(child.stdin.take());
            let (out, err) = (child.stdout.take(), child.stderr.take());
            let sender: Sender<usize> = sender.clone();
            scope.spawn(move || {
                thread::scope(|outputs| {
                    outputs.spawn(|| relay(out, &mut std::io::stdout(), None));
                    outputs.spawn(|| relay(err, &mut std::io::stderr(), Some(rank)));
                });
                // Both outputs are closed, so the process has ended.
                let _ = sender.send(rank);
            });
            children.push(child);
        }
        drop(sender);
        for rank in ended_ranks {
            let status = children[rank].wait()?;
            let ended_well = |status: ExitStatus| status.success() || deliberate_exit_code(status).is_some();
            // If one process has ended on purpose and a later process has failed, the failure is reported.
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
            // If the process has ended with one of these codes, the parent ends with the same code, since
            // these codes tell a launcher what to do.
            let codes = [EXIT_STOPPED, EXIT_TARGET, EXIT_HUNG, EXIT_OUTAGE, EXIT_USAGE];
            let code = codes.into_iter().find(|code| status.code() == Some((*code).into()));
            Err(Error::Process { rank, processes, status: status.to_string(), code })
        }
    }
}

/// Starts a thread that stops the training at the parent's request, and ends this process when its parent has
/// ended. Does nothing in a process that was not spawned.
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
        // The standard input is closed when the parent ends.
        stop::end("the parent process is gone", 1);
    });
}

/// The directory in which spawned processes write notes for each other; `None` in a process that was not
/// spawned.
pub fn shared_dir() -> Option<String> {
    std::env::var(SHARED_DIR).ok().filter(|_| is_spawned())
}

/// Whether this process was spawned.
pub fn is_spawned() -> bool {
    std::env::var_os(SPAWNED).is_some()
}

fn kill_all(children: &mut [Child]) {
    for child in children {
        // Killing fails only if the process has already ended.
        let _ = child.kill();
    }
}

/// The exit code of a process that has ended on purpose; `None` if it has failed. All processes of the job
/// end on purpose together.
fn deliberate_exit_code(status: ExitStatus) -> Option<u8> {
    let code = u8::try_from(status.code()?).ok()?;
    match code {
        EXIT_STOPPED | EXIT_TARGET => Some(code),
        _ => None,
    }
}

/// Copies whole lines from `from` to `to`, so that the lines of several processes do not mix.
fn relay(from: Option<impl Read>, to: &mut dyn Write, rank: Option<usize>) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        let prefix = rank.map(|rank| format!("[rank {rank}] ")).unwrap_or_default();
        // An error is ignored, so that the processes continue even if nobody reads their output.
        let _ = to.write_all(&[prefix.as_bytes(), &line].concat());
        line.clear();
    }
}

/// The environment variables of a process: its rank, and on a TPU host the variables of libtpu, which give
/// each process one chip.
fn environment(rank: usize, processes: usize, tpu: bool) -> Vec<(&'static str, String)> {
    let mut variables = vec![
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
        variables.extend([
            ("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1".into()),
            ("TPU_PROCESS_BOUNDS", bounds),
            ("TPU_PROCESS_ADDRESSES", (0..processes).map(address).collect::<Vec<_>>().join(",")),
            ("TPU_PROCESS_PORT", (TPU_PORT + rank).to_string()),
            ("TPU_VISIBLE_CHIPS", rank.to_string()),
            ("CLOUD_TPU_TASK_ID", rank.to_string()),
            // By default libtpu allows only one process on a machine.
            ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1".into()),
        ]);
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::Topology;

    #[test]
    fn the_environment_of_each_process_has_its_rank() {
        for tpu in [false, true] {
            let variables = environment(3, 4, tpu);
            let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            let topology = Topology::detect_from(value).unwrap();
            assert_eq!((topology.rank(), topology.world_size()), (3, 4));
            assert_eq!(topology.local_rank(), Some(3));
            assert_eq!(value("TPU_VISIBLE_CHIPS").is_some(), tpu);
        }
        let variables = environment(1, 4, true);
        let value = |name: &str| variables.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert_eq!(value("TPU_PROCESS_BOUNDS"), "2,2,1");
        assert_eq!(
            value("TPU_PROCESS_ADDRESSES"),
            "localhost:8476,localhost:8477,localhost:8478,localhost:8479"
        );
        assert_eq!(value("TPU_PROCESS_PORT"), "8477");
    }

    #[test]
    fn lines_are_copied_with_the_rank() {
        let mut out = Vec::new();
        relay(Some(&b"one\ntwo"[..]), &mut out, Some(2));
        assert_eq!(out, b"[rank 2] one\n[rank 2] two");
    }
}
