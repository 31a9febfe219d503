//! Which processes have graphics devices open, and the `drm-*` lines of those files.

use crate::HostRoot;
use std::collections::BTreeMap;

/// A file of a process that is a node of DRM.
pub(super) struct OpenFile {
    pub(super) pid: u32,
    number: u32,
    /// `card0`, `renderD128`.
    pub(super) node: String,
}

/// Only root sees files of other users.
pub(super) fn open_files(root: &HostRoot) -> impl Iterator<Item = OpenFile> {
    let of_process = move |pid: u32| {
        let numbers = root.list_numbered(&format!("/proc/{pid}/fd"), "").unwrap_or_default();
        numbers.into_iter().filter_map(move |number| {
            let target = root.read_link(&format!("/proc/{pid}/fd/{number}"))?;
            let node = target.strip_prefix("/dev/dri/")?.to_owned();
            Some(OpenFile { pid, number, node })
        })
    };
    root.list_numbered("/proc", "").unwrap_or_default().into_iter().flat_map(of_process)
}

impl OpenFile {
    /// What the driver reports of it; `None` if it is no longer open.
    pub(super) fn client(&self, root: &HostRoot) -> Option<Client> {
        client(&root.read(&format!("/proc/{}/fdinfo/{}", self.pid, self.number)).ok().flatten()?)
    }
}

/// What the driver reports of a client, from one of its open files.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) driver: String,
    pub(super) address: Option<String>,
    pub(super) number: u64,
    pub(super) memory_bytes: u64,
    pub(super) system_bytes: u64,
    pub(super) engines: BTreeMap<String, Engine>,
}

/// How much a client used the engines of one kind, since it opened the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Engine {
    pub(super) busy_ns: Option<u64>,
    /// If the driver counts cycles instead (xe): those of the client, and how many there were in all.
    pub(super) cycles: Option<u64>,
    pub(super) total_cycles: Option<u64>,
    /// Engines of this kind; 1 without a line for it.
    pub(super) capacity: Option<u64>,
}

type EngineField = fn(&mut Engine) -> &mut Option<u64>;

impl Client {
    pub(super) fn busy_ns(&self) -> u64 {
        self.engines.values().filter_map(|engine| engine.busy_ns).fold(0, u64::saturating_add)
    }

    fn take_engine(&mut self, key: &str, value: &str) {
        let kinds: [(&str, EngineField); 4] = [
            ("engine-capacity-", |engine| &mut engine.capacity),
            ("engine-", |engine| &mut engine.busy_ns),
            ("total-cycles-", |engine| &mut engine.total_cycles),
            ("cycles-", |engine| &mut engine.cycles),
        ];
        let found = kinds.iter().find_map(|(kind, of)| Some((key.strip_prefix(kind)?, of)));
        let number = value.split_whitespace().next().and_then(|number| number.parse().ok());
        if let (Some((name, of)), Some(number)) = (found, number) {
            *of(self.engines.entry(name.to_owned()).or_default()) = Some(number);
        }
    }
}

/// The `drm-*` lines; `None` for files that have none.
pub(super) fn client(text: &str) -> Option<Client> {
    let mut found = Client::default();
    // For each region the best figure: resident memory, before what has been asked for.
    let mut regions: BTreeMap<&str, (u8, u64)> = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.strip_prefix("drm-").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let value = value.trim();
        match key {
            "driver" => found.driver = value.to_owned(),
            "pdev" => found.address = Some(value.to_owned()),
            "client-id" => found.number = value.parse().ok()?,
            _ => found.take_engine(key, value),
        }
        let kinds = [("resident-", 3), ("memory-", 2), ("total-", 1)];
        let found = kinds.iter().find_map(|(kind, rank)| Some((key.strip_prefix(kind)?, *rank)));
        if let Some((region, rank)) = found.filter(|(region, _)| !region.starts_with("cycles-")) {
            let entry = regions.entry(region).or_default();
            *entry = (*entry).max((rank, bytes(value)?));
        }
    }
    for (region, (_, bytes)) in regions {
        let is_own = ["vram", "local", "lmem", "fb"].iter().any(|own| region.starts_with(own));
        *(if is_own { &mut found.memory_bytes } else { &mut found.system_bytes }) += bytes;
    }
    (!found.driver.is_empty()).then_some(found)
}

/// `123 KiB`.
fn bytes(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        None => Some(number),
        Some("KiB") => number.checked_mul(1 << 10),
        Some("MiB") => number.checked_mul(1 << 20),
        Some(_) => None,
    }
}
