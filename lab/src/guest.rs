//! A running guest: runs scripts in it and brings back what they wrote.

use crate::boot_folder::{BootFolder, Files};
use crate::error::LabError;
use crate::grub;
use crate::hang;
use crate::host;
use crate::kernel_log;
use crate::line::Line;
use crate::machine::{Architecture, Device, Machine, Profile};
use crate::output::Output;
use crate::qemu::{self, Parts};
use crate::stuck;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

mod running;

pub use running::Running;

/// A guest that is not ready after this time is given up. A busy host needs several times the usual ten seconds.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// A script may take this long unless it is given another limit.
const SCRIPT_LIMIT: Duration = Duration::from_secs(240);
/// How often the guest's process is checked while waiting for the agent.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// A socket waits at least this long: zero would mean for ever.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// The lab looks at a guest that has said nothing for this long: QEMU may keep one of its CPUs at one instruction.
const SILENCE: Duration = Duration::from_secs(40);
/// How long the monitor may take to answer.
const MONITOR_LIMIT: Duration = Duration::from_secs(60);
/// Lines of the console that an error shows.
const CONSOLE_LINES: usize = 40;

/// A running guest. Dropping it ends it.
#[derive(Debug)]
pub struct Guest {
    /// What it is made of: it may be started again.
    machine: Machine,
    files: Files,
    child: Child,
    agent: Line,
    monitor: UnixStream,
    folder: BootFolder,
    jobs: u32,
    /// Length of the console's log up to which complaints have been reported.
    console_seen: usize,
    version: String,
    /// It was killed and no longer runs anything.
    ended: bool,
}

impl Guest {
    /// Starts a machine and waits until it takes scripts.
    pub(crate) fn boot(machine: &Machine, files: &Files) -> Result<Self, LabError> {
        let folder = BootFolder::new(files)?;
        let (child, agent, monitor) = begin(machine, files, &folder, "")?;
        let mut guest = Self {
            machine: machine.clone(),
            files: files.clone(),
            child,
            agent,
            monitor,
            folder,
            jobs: 0,
            console_seen: 0,
            version: String::new(),
            ended: false,
        };
        guest.come_up()?;
        Ok(guest)
    }

    /// Waits until the guest takes scripts.
    fn come_up(&mut self) -> Result<(), LabError> {
        self.version = self.wait_for("ready ", BOOT_LIMIT)?.trim().to_owned();
        self.check_log(&read_or_empty(&self.share().join("boot.log")))
    }

    /// Cuts the power of the machine, whatever it does, and boots it again. Its second disk keeps what had arrived
    /// there.
    pub fn cut_power(&mut self) -> Result<(), LabError> {
        self.cut_power_and_boot("")
    }

    /// As [`Guest::cut_power`], with `words` behind the usual ones on the kernel's command line of this one boot.
    pub fn cut_power_and_boot(&mut self, words: &str) -> Result<(), LabError> {
        self.end();
        (self.child, self.agent, self.monitor) = begin(&self.machine, &self.files, &self.folder, words)?;
        (self.ended, self.console_seen) = (false, 0);
        self.come_up()
    }

    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.machine.kernel.architecture()
    }

    /// Version of the running kernel, as `uname -r` says.
    #[must_use]
    pub fn kernel_version(&self) -> &str {
        &self.version
    }

    /// The folder that the guest sees as `/lab`.
    #[must_use]
    pub fn share(&self) -> PathBuf {
        self.folder.share()
    }

    /// Whether the guest was given up; nothing can be run in it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Runs a shell script in the guest, whatever its exit status.
    ///
    /// # Errors
    /// When the guest ends or does not answer (it is killed then), or when its kernel complains.
    pub fn run(&mut self, script: &str) -> Result<Output, LabError> {
        self.start(script)?.wait(SCRIPT_LIMIT)
    }

    /// Runs a shell script that is to succeed, and returns its stdout without white space at its ends.
    pub fn ok(&mut self, script: &str) -> Result<String, LabError> {
        let Output { status, stdout, stderr, .. } = self.run(&format!("set -e\n{script}"))?;
        if status == 0 {
            Ok(stdout.trim().to_owned())
        } else {
            Err(LabError::Script { status, stdout, stderr })
        }
    }

    /// Runs a shell script that may reboot the machine; `None` if it did, and the guest takes scripts again. Only a
    /// guest with [`Device::Grub`] is booted again.
    pub fn run_or_reboot(&mut self, script: &str, limit: Duration) -> Result<Option<Output>, LabError> {
        let name = self.start(script)?.name;
        let done = format!("done {name} ");
        match self.look_for_any(&[&done, "ready "], limit)? {
            Some((0, rest)) => Running { guest: self, name, done: Some(rest) }.wait(limit).map(Some),
            Some((_, version)) => {
                self.version = version.trim().to_owned();
                self.console_seen = self.console().len();
                self.check_log(&read_or_empty(&self.share().join("boot.log")))?;
                Ok(None)
            }
            None => {
                Err(self
                    .failure(&format!("neither ended the script nor rebooted within {} s", limit.as_secs())))
            }
        }
    }

    /// Starts a shell script in the guest, so that the host can do something while it runs.
    pub fn start(&mut self, script: &str) -> Result<Running<'_>, LabError> {
        if self.ended {
            return Err(self.failure("was given up earlier"));
        }
        self.jobs += 1;
        let name = self.jobs.to_string();
        let job = self.share().join("jobs").join(&name);
        host::create_folder(&job)?;
        host::write(&job.join("script"), script)?;
        let sent = self.agent.send(&name);
        sent.map_err(LabError::file("write to", &self.folder.path().join("agent")))?;
        Ok(Running { guest: self, name, done: None })
    }

    /// Runs a command of QEMU's monitor, for example `nmi` or `info cpus`, and returns its answer.
    pub fn monitor(&mut self, command: &str) -> Result<String, LabError> {
        let path = self.folder.path().join("monitor");
        let failed = LabError::file("use", &path);
        let mut exchange = || -> std::io::Result<String> {
            self.monitor.set_read_timeout(Some(MONITOR_LIMIT))?;
            self.monitor.write_all(format!("{command}\n").as_bytes())?;
            let mut answer = Vec::new();
            let mut buffer = [0; 4096];
            // The prompt comes once before the echo of the command and once after the answer.
            while !String::from_utf8_lossy(&answer)
                .split(command)
                .last()
                .is_some_and(|rest| rest.contains("(qemu) "))
                || !String::from_utf8_lossy(&answer).contains(command)
            {
                match self.monitor.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    length => answer.extend_from_slice(&buffer[..length]),
                }
            }
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        exchange().map_err(failed)
    }

    /// Stops the whole virtual machine for a time, as firmware or a hypervisor would: nothing in the guest sees why
    /// time has passed. Returns how long all of it was stopped for certain.
    pub fn freeze(&mut self, duration: Duration) -> Result<Duration, LabError> {
        let gone = |error: rustix::io::Errno| LabError::Guest {
            what: format!("cannot be stopped: {error}"),
            console: self.console_end(),
        };
        let pid = Pid::from_raw(self.child.id() as i32).ok_or_else(|| gone(rustix::io::Errno::SRCH))?;
        kill_process(pid, Signal::STOP).map_err(gone)?;
        // Each thread stops when it sees the signal, which on a busy host takes a while.
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), either).map_err(gone)?;
        let started = Instant::now();
        std::thread::sleep(duration);
        let stopped = started.elapsed();
        kill_process(pid, Signal::CONT).map_err(gone)?;
        Ok(stopped)
    }

    /// The threads of the emulator.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten();
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Waits for a line of the agent that begins with `prefix` and returns the rest of it. A guest that does not send it
    /// in time is killed.
    fn wait_for(&mut self, prefix: &str, limit: Duration) -> Result<String, LabError> {
        match self.look_for(prefix, limit)? {
            Some(rest) => Ok(rest),
            None => {
                let mut failure = self.what_happened(&format!("did not answer within {} s", limit.as_secs()));
                if let LabError::Guest { console, .. } = &mut failure {
                    console.push_str(&format!("\nstate of the guest:\n{}", self.what_it_does()));
                }
                self.end();
                Err(failure)
            }
        }
    }

    /// What QEMU reports of its CPUs.
    fn machine(&mut self) -> String {
        hang::machine(self.machine.profile.cpus(), |command| self.monitor(command))
    }

    /// What QEMU reports of its CPUs, and the kernel of its CPUs and tasks; either part may be missing.
    fn what_it_does(&mut self) -> String {
        let machine = self.machine();
        let before = self.console().len();
        if hang::KEYS.iter().all(|key| self.monitor(key).is_ok()) {
            hang::wait_until_quiet(|| self.console().len());
        }
        let tasks = hang::tasks(self.console().get(before..).unwrap_or_default());
        format!("{machine}\n{tasks}")
    }

    /// As [`Guest::wait_for`]; a guest that does not send the line in time goes on.
    fn look_for(&mut self, prefix: &str, limit: Duration) -> Result<Option<String>, LabError> {
        Ok(self.look_for_any(&[prefix], limit)?.map(|(_, rest)| rest))
    }

    /// The same of several prefixes; which of them it was, and the rest of the line.
    fn look_for_any(
        &mut self,
        prefixes: &[&str],
        limit: Duration,
    ) -> Result<Option<(usize, String)>, LabError> {
        let deadline = Instant::now() + limit;
        let mut look_next = Instant::now() + SILENCE;
        loop {
            if Instant::now() >= look_next {
                self.check_progress()?;
                look_next = Instant::now() + SILENCE;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.agent.read(LOOK_INTERVAL.min(left.max(LOOK_INTERVAL_MIN))) {
                Ok(Some(line)) => {
                    let found =
                        prefixes.iter().enumerate().find_map(|(nth, it)| Some((nth, line.strip_prefix(it)?)));
                    if let Some((nth, rest)) = found {
                        return Ok(Some((nth, rest.to_owned())));
                    }
                }
                Ok(None) if left.is_zero() => return Ok(None),
                Ok(None) => {}
                Err(_) => return Err(self.failure("ended")),
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(&format!("ended ({status})")));
            }
        }
    }

    /// Ends a guest if QEMU keeps one of its CPUs at one instruction, or has lost a timer: both need several threads
    /// of QEMU.
    fn check_progress(&mut self) -> Result<(), LabError> {
        if self.machine.profile != Profile::Threads {
            return Ok(());
        }
        match stuck::stuck_cpu(|| self.monitor("info registers -a"))? {
            Some((cpu, address)) => {
                let machine = self.machine();
                if hang::is_off(&machine, cpu) {
                    return Ok(());
                }
                self.end();
                Err(LabError::Stuck { cpu, address, machine })
            }
            None if kernel_log::tells_of_a_lost_timer(&self.unseen_console()) => {
                Err(self.failure("is idle and does not wake up"))
            }
            None => Ok(()),
        }
    }

    /// Ends the guest and says what happened. The kernel's own words come first if there are any.
    fn failure(&mut self, what: &str) -> LabError {
        self.end();
        self.what_happened(what)
    }

    /// What happened, in the kernel's own words if there are any.
    fn what_happened(&self, what: &str) -> LabError {
        match kernel_log::trouble(&self.unseen_console()) {
            Some(lines) => self.complaint(format!("{lines}\n(the guest {what})")),
            None => LabError::Guest { what: what.to_owned(), console: self.console_end() },
        }
    }

    fn check_log(&self, log: &str) -> Result<(), LabError> {
        match kernel_log::trouble(log) {
            Some(lines) => Err(self.complaint(lines)),
            None => Ok(()),
        }
    }

    /// The complaint in these lines of the kernel's log.
    fn complaint(&self, lines: String) -> LabError {
        match self.machine.profile == Profile::Threads && kernel_log::tells_of_a_lost_timer(&lines) {
            true => LabError::TimerLost { lines },
            false => LabError::Kernel { lines },
        }
    }

    /// The part of the console that no script has seen.
    fn unseen_console(&self) -> String {
        let console = self.console();
        console.get(self.console_seen..).unwrap_or(&console).to_owned()
    }

    fn console(&self) -> String {
        read_or_empty(&self.folder.path().join("console.log"))
    }

    fn console_end(&self) -> String {
        let mut text = self.console();
        text.push_str(&read_or_empty(&self.folder.path().join("qemu.log")));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
    }

    fn end(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.ended = true;
    }
}

/// Starts QEMU and connects to the agent's line and to the monitor.
fn begin(
    machine: &Machine,
    files: &Files,
    folder: &BootFolder,
    words: &str,
) -> Result<(Child, Line, UnixStream), LabError> {
    let parts = Parts {
        emulator: &files.emulator,
        kernel: &files.kernel,
        root: &files.root,
        folder: folder.path(),
        share: &folder.share(),
    };
    if machine.devices.contains(&Device::Grub)
        && !grub::disk(folder.path()).exists()
        && let Some(tree) = &files.grub
    {
        grub::make(tree, folder.path(), &files.kernel, &files.version, &qemu::command_line(machine))?;
    }
    let mut command = qemu::command(machine, &parts, words)?;
    let mut child =
        command.spawn().map_err(|source| LabError::Start { command: host::shown(&command), source })?;
    let streams = qemu::connect(&mut child, &folder.path().join("agent"))
        .and_then(|agent| Ok((agent, qemu::connect(&mut child, &folder.path().join("monitor"))?)));
    match streams {
        Ok((agent, monitor)) => Ok((child, Line::new(agent), monitor)),
        Err(what) => {
            let console = read_or_empty(&folder.path().join("qemu.log"));
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            Err(LabError::Guest { what, console })
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// A text that may not exist yet.
fn read_or_empty(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
