//! The snapshot of a machine that every result carries: what a latency figure depends on.
//!
//! A field that the machine does not offer is absent, never a sentinel.

use crate::cpus::{CpuContext, CpuSet};
use crate::units::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything known about the measured machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Facts {
    /// Version of whylate that took the snapshot.
    pub whylate_version: String,
    /// Name of the machine.
    pub host: String,
    /// The kernel.
    pub kernel: KernelFacts,
    /// The processor.
    pub processor: ProcessorFacts,
    /// Every present CPU, ascending.
    pub cpus: Vec<CpuFacts>,
    /// Sets of CPUs.
    pub cpu_sets: CpuSetFacts,
    /// The clock.
    pub clock: ClockFacts,
    /// Scheduling and power settings that matter to latency.
    pub settings: SettingsFacts,
    /// Memory.
    pub memory: MemoryFacts,
    /// What this process may do.
    pub privileges: PrivilegeFacts,
    /// Virtual machine or container, if there is one.
    pub environment: EnvironmentFacts,
    /// Graphics devices.
    pub gpus: Vec<GpuFacts>,
}

/// The running kernel.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KernelFacts {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// `uname -m`.
    pub architecture: String,
    /// `/proc/cmdline`.
    pub command_line: String,
    /// `PREEMPT_RT`, `PREEMPT_DYNAMIC`, `PREEMPT`, `PREEMPT_LAZY` or `none`, with the active mode in brackets if it
    /// can be read: `PREEMPT_DYNAMIC (voluntary)`.
    pub preemption: String,
    /// Whether this is a PREEMPT_RT kernel.
    pub realtime: bool,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// Why the kernel is tainted, as bits (`/proc/sys/kernel/tainted`); 0 if it is not tainted.
    pub tainted: Option<u64>,
    /// Each `/sys/devices/system/cpu/vulnerabilities/NAME` as `[NAME, state]`.
    pub mitigations: Vec<(String, String)>,
}

/// The processor package.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProcessorFacts {
    /// Maker and model as the kernel prints them.
    pub model: String,
    /// Microcode revision.
    pub microcode: Option<String>,
    /// Instruction-set extensions that the loads use: `avx2`, `avx512f`, `neon`.
    pub features: Vec<String>,
}

/// One logical CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuFacts {
    /// The CPU's number.
    pub cpu: CpuId,
    /// Whether the CPU is online.
    pub online: bool,
    /// Package (socket).
    pub package: Option<u32>,
    /// Core within the package.
    pub core: Option<u32>,
    /// NUMA node.
    pub node: Option<u32>,
    /// Logical CPUs of the same core, this CPU included.
    #[serde(skip_serializing_if = "CpuSet::is_empty")]
    pub siblings: CpuSet,
    /// `performance` or `efficiency` on hybrid processors.
    pub kind: Option<String>,
    /// Relative capacity (`cpu_capacity`, 0 to 1024), if the kernel reports it.
    pub capacity: Option<u32>,
    /// Data and unified caches, nearest first.
    pub caches: Vec<CacheFacts>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Lowest frequency that the CPU may use.
    pub frequency_min_hz: Option<u64>,
    /// Highest frequency that the CPU may use.
    pub frequency_max_hz: Option<u64>,
    /// Idle states that are not disabled, shallowest first.
    pub idle_states: Vec<IdleStateFacts>,
}

/// One cache of a CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheFacts {
    /// 1, 2, 3, …
    pub level: u32,
    /// `Data` or `Unified`.
    pub kind: String,
    /// Size of the cache.
    pub size_bytes: u64,
    /// Length of a cache line.
    pub line_bytes: Option<u64>,
    /// CPUs that share the cache.
    pub shared_by: CpuSet,
}

/// One idle state of a CPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IdleStateFacts {
    /// `POLL`, `C1`, …
    pub name: String,
    /// Longest time to leave the state, as the kernel states it.
    pub exit_latency_ns: Option<u64>,
}

/// Sets of CPUs as the kernel keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuSetFacts {
    /// `/sys/devices/system/cpu/present`.
    pub present: CpuSet,
    /// `/sys/devices/system/cpu/online`.
    pub online: CpuSet,
    /// `/sys/devices/system/cpu/isolated` and isolated cpuset partitions.
    pub isolated: CpuSet,
    /// `/sys/devices/system/cpu/nohz_full`.
    pub nohz_full: CpuSet,
    /// CPUs that this process may use.
    pub allowed: CpuSet,
}

/// The clock source and the time-stamp counter.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClockFacts {
    /// The clock source in use.
    pub source: Option<String>,
    /// The available clock sources.
    pub available: Vec<String>,
    /// Whether the time-stamp counter runs at a constant rate in every power state (x86 `constant_tsc nonstop_tsc`;
    /// always so on arm64).
    pub counter_invariant: bool,
}

/// Settings that matter to latency.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SettingsFacts {
    /// `kernel.sched_rt_runtime_us`: time that real-time tasks may use in each period; -1 is no limit.
    pub rt_runtime_us: Option<i64>,
    /// `kernel.sched_rt_period_us`.
    pub rt_period_us: Option<i64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Whether SMT is on (`/sys/devices/system/cpu/smt/active`).
    pub smt_active: Option<bool>,
    /// cpuidle driver.
    pub idle_driver: Option<String>,
    /// cpufreq driver.
    pub frequency_driver: Option<String>,
    /// `kernel.watchdog`.
    pub watchdog: Option<bool>,
    /// `kernel.numa_balancing`.
    pub numa_balancing: Option<bool>,
}

/// Memory.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemoryFacts {
    /// MemTotal.
    pub total_bytes: Option<u64>,
    /// MemAvailable.
    pub available_bytes: Option<u64>,
    /// SwapTotal.
    pub swap_bytes: Option<u64>,
    /// NUMA nodes.
    pub nodes: Option<u32>,
}

/// What this process may do.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PrivilegeFacts {
    /// Whether the effective user id is 0.
    pub root: bool,
    /// Highest real-time priority that the process may set (CAP_SYS_NICE or RLIMIT_RTPRIO); 0: it may set no real-time priority.
    pub realtime_priority_max: u32,
    /// Memory that the process may lock; absent without a limit (CAP_IPC_LOCK or an unlimited RLIMIT_MEMLOCK).
    pub lockable_bytes: Option<u64>,
    /// Whether `/dev/cpu_dma_latency` can be written.
    pub cpu_dma_latency: bool,
    /// Whether tracefs can be written: at its mount point, or after whylate has mounted it for a run.
    pub tracefs: bool,
    /// Real-time budget of this process's cgroup (`cpu.rt_runtime_us`) if the kernel was built with RT_GROUP_SCHED and
    /// the process is not in the root group.
    pub cgroup_rt_runtime_us: Option<i64>,
}

/// Where the kernel or this process runs.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EnvironmentFacts {
    /// `kvm`, `vmware`, `xen`, `microsoft`, … or `unknown hypervisor`; absent on bare metal.
    pub hypervisor: Option<String>,
    /// `docker`, `podman`, `lxc`, `kubernetes`, …; absent outside containers.
    pub container: Option<String>,
    /// Version of the cgroups, absent without cgroups; for hybrid mounts, that of the cpuset controller.
    pub cgroup_version: Option<u32>,
}

/// One graphics device.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GpuFacts {
    /// `card0`.
    pub name: String,
    /// Kernel driver.
    pub driver: Option<String>,
    /// PCI `vendor:device`.
    pub pci_id: Option<String>,
    /// Runtime power management: `auto` or `on`.
    pub runtime_power: Option<String>,
    /// PCI address.
    pub address: Option<String>,
    /// The name that the driver gives the device (NVIDIA).
    pub model: Option<String>,
    /// Version of a driver that is not the kernel's own.
    pub driver_version: Option<String>,
    /// The device's own memory, if the driver reports it (amdgpu).
    pub memory_bytes: Option<u64>,
    /// The device's interrupt lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<GpuInterrupt>,
    /// What the device did when the facts were read.
    #[serde(skip_serializing_if = "GpuUsage::is_unknown")]
    pub usage: GpuUsage,
}

/// An interrupt line of a graphics device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuInterrupt {
    /// The line's number in /proc/interrupts.
    pub line: u32,
    /// The CPUs that the line interrupts.
    pub cpus: CpuSet,
}

/// What a graphics device did at one moment. Figures that are not reported, or would wake the device, are absent.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GpuUsage {
    /// `active`, `suspended`, ….
    pub power_state: Option<String>,
    /// Clock of the device.
    pub clock_mhz: Option<u32>,
    /// How busy the device was (amdgpu).
    pub busy_percent: Option<u32>,
    /// Used bytes of the device's own memory (amdgpu).
    pub memory_used_bytes: Option<u64>,
    /// Used bytes of the system's memory (amdgpu).
    pub system_used_bytes: Option<u64>,
    /// The processes that have the device open, most memory first; only root sees other users' processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<GpuProcess>,
}

impl GpuUsage {
    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// A process that has a graphics device open, by the `drm-*` lines of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuProcess {
    /// The process id.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// Memory of the device that the process uses.
    pub memory_bytes: u64,
    /// Memory of the system that the device uses for the process.
    pub system_bytes: u64,
    /// Time that the device's engines have worked for the process since it opened the device.
    pub busy_ns: u64,
}

impl Facts {
    /// Whether nothing is known about the machine.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// The CPUs that an experiment may name.
    pub fn cpu_context(&self) -> CpuContext {
        CpuContext {
            present: self.cpu_sets.present.clone(),
            online: self.cpu_sets.online.clone(),
            isolated: self.cpu_sets.isolated.clone(),
            allowed: self.cpu_sets.allowed.clone(),
        }
    }

    /// What is known of one CPU.
    pub fn cpu(&self, cpu: CpuId) -> Option<&CpuFacts> {
        self.cpus.iter().find(|facts| facts.cpu == cpu)
    }
}

impl KernelFacts {
    /// Whether the kernel has this version (such as 6 and 15) or a newer one; false if its release cannot be read.
    pub fn is_from(&self, version: (u32, u32)) -> bool {
        let mut numbers =
            self.release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse::<u32>().ok());
        numbers.next().flatten().zip(numbers.next().flatten()) >= Some(version)
    }
}

impl CpuFacts {
    /// The size of this CPU's data or unified cache of that level; `None` when it reports none.
    pub fn cache_bytes(&self, level: u32) -> Option<u64> {
        self.caches.iter().find(|cache| cache.level == level).map(|cache| cache.size_bytes)
    }
}
