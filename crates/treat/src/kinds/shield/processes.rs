//! Tasks and threads of the kernel, away from shielded CPUs: by cpusets, or one by one.

use super::{Sides, listed, without};
use crate::change::{Change, Hierarchy as Groups, Target, Task, Undoing};
use crate::kinds::writable;
use crate::planner::{Impossible, Planned, Surroundings};
use crate::reading::Reading;
use whylate_core::plan::ShieldMethod;
use whylate_core::result::{ThreadKind, ThreadRow};
use whylate_core::{CpuSet, Warning, WarningCode};
use whylate_host::cgroup::group_of;
use whylate_host::release;
use whylate_host::shield::{GROUP, Hierarchy, MARK, OTHERS_GROUP};
use whylate_host::threads::Threads;

pub(super) fn plan(
    sides: &Sides,
    method: ShieldMethod,
    surroundings: &Surroundings,
) -> Result<Planned, Impossible> {
    let threads = movable(surroundings)?;
    let hierarchy = cpusets(surroundings)?;
    match (method, hierarchy) {
        (ShieldMethod::Auto | ShieldMethod::Cpuset, Some(hierarchy)) => {
            by_cpuset(sides, &hierarchy, &threads, surroundings)
        }
        (ShieldMethod::Cpuset, None) => Err(Impossible::new(
            "method: there is no cpuset controller here; use `affinity` (a cpuset needs cgroup v1 `cpuset`, or cgroup v2 \
                 on Linux 6.1 or later, outside of a container)",
        )),
        (ShieldMethod::Auto | ShieldMethod::Affinity, _) => {
            let mut planned = Planned::changes(vec![mark(sides)]);
            planned.changes.extend(by_affinity(sides, &threads, surroundings));
            let text = "the shield only sets the affinity of each thread: kernel threads that start later, \
                        and programs that set their own affinity, can still use the shielded CPUs";
            planned.warnings.push(Warning::new(WarningCode::ShieldByAffinity, text));
            Ok(planned)
        }
    }
}

/// The cpusets that can be used. Before 6.1, cgroup v2 has no isolated partitions, and its other partitions also take
/// the kernel's bound threads off their CPUs: then its workqueues stop.
fn cpusets(surroundings: &Surroundings) -> Result<Option<Hierarchy>, Impossible> {
    let has_isolated = release::is_from(&surroundings.root, (6, 1))?;
    Ok(Hierarchy::find(&surroundings.root)?.filter(|found| found.version == 1 || has_isolated))
}

/// Affinities do not show that there is a shield: it is recorded for those who look for it.
fn mark(sides: &Sides) -> Change {
    let target = Target::file_with(MARK, Reading::Text);
    let effect = "records which CPUs are shielded";
    Change::optional(target, sides.shielded.to_string(), effect)
}

/// Tasks that were started while the others were being moved; an isolated partition leaves none.
pub(super) fn stragglers(
    sides: &Sides,
    method: ShieldMethod,
    surroundings: &Surroundings,
) -> Result<Vec<Change>, Impossible> {
    let threads = movable(surroundings)?;
    let hierarchy = cpusets(surroundings)?.filter(|_| method != ShieldMethod::Affinity);
    Ok(match hierarchy {
        Some(Hierarchy { version: 1, mount }) => {
            let members = threads.iter().filter_map(|thread| Some((thread, task(thread, surroundings)?)));
            members.filter_map(|(thread, task)| join(thread, task, sides, &mount, surroundings)).collect()
        }
        Some(_) => Vec::new(),
        None => by_affinity(sides, &threads, surroundings),
    })
}

/// Whether the affinity of a task is the shielded CPUs alone: it belongs there.
fn belongs(thread: &ThreadRow, sides: &Sides) -> bool {
    !thread.kernel && !thread.cpus.is_empty() && thread.cpus.difference(&sides.shielded).is_empty()
}

/// Threads whose CPUs can be changed.
fn movable(surroundings: &Surroundings) -> Result<Vec<ThreadRow>, Impossible> {
    let threads = Threads::read(&surroundings.root)?;
    Ok(threads.rows.into_iter().filter(|thread| thread.kind != ThreadKind::Pinned).collect())
}

fn task(thread: &ThreadRow, surroundings: &Surroundings) -> Option<Task> {
    Task::of(&surroundings.root, thread)
}

/// Without groups: each thread is confined to the other CPUs.
fn by_affinity(sides: &Sides, threads: &[ThreadRow], surroundings: &Surroundings) -> Vec<Change> {
    let is_astray = |thread: &&ThreadRow| {
        !thread.cpus.intersection(&sides.shielded).is_empty() && !belongs(thread, sides)
    };
    let touching = threads.iter().filter(is_astray);
    let change = |thread: &ThreadRow| {
        let new = without(&thread.cpus, sides);
        let effect = format!("{} runs on CPU {new}", thread.name);
        Some(Change::optional(
            Target::Affinity { task: task(thread, surroundings)? },
            new.to_string(),
            effect,
        ))
    };
    touching.filter_map(change).collect()
}

fn by_cpuset(
    sides: &Sides,
    hierarchy: &Hierarchy,
    threads: &[ThreadRow],
    surroundings: &Surroundings,
) -> Result<Planned, Impossible> {
    let group = hierarchy.group();
    if surroundings.root.exists(&group) {
        let reason =
            format!("{group} exists already: another shield is in force; see `whylate treat status`");
        return Err(Impossible::new(reason));
    }
    let mut planned = Planned::changes(remember(threads, surroundings));
    planned.changes.extend(if hierarchy.version == 1 {
        let members = threads.iter().filter_map(|thread| Some((thread, task(thread, surroundings)?)));
        v1(sides, hierarchy, members, surroundings)?
    } else {
        v2(sides, hierarchy, surroundings)?
    });
    if hierarchy.version == 2 {
        members(sides, hierarchy, threads, surroundings, &mut planned);
    }
    Ok(planned)
}

/// Records the affinity of every thread that has one of its own: the kernel changes it along with cpusets, and does
/// not always restore it.
fn remember(threads: &[ThreadRow], surroundings: &Surroundings) -> Vec<Change> {
    let online = &surroundings.cpus.online;
    let own = threads.iter().filter(|thread| !online.difference(&thread.cpus).is_empty());
    let change = |thread: &ThreadRow| {
        let target = Target::Affinity { task: task(thread, surroundings)? };
        let effect = format!("{} gets its CPUs back after the shield", thread.name);
        Some(Change::optional(target, thread.cpus.to_string(), effect).undone(Undoing::Always))
    };
    own.filter_map(change).collect()
}

/// An isolated partition: the kernel itself keeps everything else away, including what is started later. Its group
/// takes single threads, so that a measuring process can have its other threads elsewhere.
fn v2(sides: &Sides, hierarchy: &Hierarchy, surroundings: &Surroundings) -> Result<Vec<Change>, Impossible> {
    let (mount, group, cpus) = (&hierarchy.mount, hierarchy.group(), &sides.shielded);
    let controllers = format!("{mount}/cgroup.subtree_control");
    writable(surroundings, &controllers)?;
    let file = |name: &str| Target::file(format!("{group}/{name}"));
    let inside =
        |target, new: &str, effect: String| Change::required(target, new, effect).undone(Undoing::WithFolder);
    Ok(vec![
        Change::required(
            Target::file_with(controllers, Reading::CpusetController),
            "+cpuset",
            "child groups may have cpusets",
        ),
        Change::required(
            Target::Directory { path: group.clone() },
            Target::PRESENT,
            "a group for tasks that may run on the shielded CPUs",
        ),
        inside(file("cgroup.type"), "threaded", "threads can enter the group one by one".to_owned()),
        inside(
            Target::file_with(format!("{group}/cpuset.cpus"), Reading::CpuList),
            &cpus.to_string(),
            format!("the CPUs of the group are {cpus}"),
        ),
        inside(
            file("cpuset.cpus.partition"),
            "isolated",
            format!("only tasks of the group run on CPU {cpus}, without load balancing"),
        ),
    ])
}

/// Processes whose threads all belong on the shielded CPUs enter the group; single threads have to leave, since only
/// their own process could take them into it.
fn members(
    sides: &Sides,
    hierarchy: &Hierarchy,
    threads: &[ThreadRow],
    surroundings: &Surroundings,
    planned: &mut Planned,
) {
    let mut leaving = Vec::new();
    for thread in threads.iter().filter(|thread| belongs(thread, sides)) {
        let is_whole =
            threads.iter().filter(|other| other.pid == thread.pid).all(|other| belongs(other, sides));
        if !is_whole {
            leaving.push(format!("{} ({})", thread.name, thread.tid));
        } else if let Some(task) = task(thread, surroundings).filter(|task| task.tid == task.pid) {
            let target =
                Target::Membership { task, hierarchy: Groups::CgroupV2, mount: hierarchy.mount.clone() };
            let effect = format!("{} stays on CPU {}", thread.name, thread.cpus);
            planned.changes.push(Change::optional(target, format!("/{GROUP}"), effect));
        }
    }
    if !leaving.is_empty() {
        let text = format!(
            "these threads cannot stay on CPU {}, because other threads of their process may use other CPUs: {}",
            sides.shielded,
            listed(&leaving)
        );
        let fix =
            "restart these threads in the shield's group (`whylate treat apply shield --help` says how)";
        planned.warnings.push(Warning::with_fix(WarningCode::ThreadsEvicted, text, fix));
    }
}

/// Two groups: every thread that can be moved goes to the one; the other is for the shielded CPUs.
fn v1<'t>(
    sides: &Sides,
    hierarchy: &Hierarchy,
    members: impl Iterator<Item = (&'t ThreadRow, Task)>,
    surroundings: &Surroundings,
) -> Result<Vec<Change>, Impossible> {
    let mount = &hierarchy.mount;
    let balance = format!("{mount}/cpuset.sched_load_balance");
    writable(surroundings, &balance)?;
    let memory = surroundings.root.read_trimmed(&format!("{mount}/cpuset.mems"))?.unwrap_or_default();
    let mut changes = Vec::new();
    let groups =
        [(format!("{mount}/{OTHERS_GROUP}"), &sides.others, "1"), (hierarchy.group(), &sides.shielded, "0")];
    for (group, cpus, balanced) in groups {
        let effect = format!("a group for tasks that may run on CPU {cpus}");
        changes.push(Change::required(Target::Directory { path: group.clone() }, Target::PRESENT, effect));
        let file = |name: &str, reading| Target::file_with(format!("{group}/{name}"), reading);
        let files = [
            (file("cpuset.mems", Reading::CpuList), memory.clone(), "the group may use all memory"),
            (file("cpuset.cpus", Reading::CpuList), cpus.to_string(), "the CPUs of the group"),
            (
                file("cpuset.sched_load_balance", Reading::Whole),
                balanced.to_owned(),
                "whether the scheduler balances load in the group",
            ),
        ];
        let inside = files
            .into_iter()
            .map(|(target, new, effect)| Change::required(target, new, effect).undone(Undoing::WithFolder));
        changes.extend(inside);
    }
    let effect = "the scheduler balances load only within groups";
    changes.push(Change::required(Target::file(balance), "0", effect));
    let joins = members.filter_map(|(thread, task)| join(thread, task, sides, mount, surroundings));
    changes.extend(joins.collect::<Vec<_>>());
    Ok(changes)
}

/// A thread in the root group goes to one of the two. kthreadd, which starts the kernel's other threads, has to stay
/// there, and threads in groups of their own are confined where they are.
fn join(
    thread: &ThreadRow,
    task: Task,
    sides: &Sides,
    mount: &str,
    surroundings: &Surroundings,
) -> Option<Change> {
    let groups =
        surroundings.root.read(&format!("/proc/{}/task/{}/cgroup", thread.pid, thread.tid)).ok()??;
    let controller = "cpuset";
    let group = group_of(&groups, Some(controller))?;
    let is_first_kernel_thread = thread.kernel && thread.name == "kthreadd";
    let is_member = belongs(thread, sides);
    if group == "/" && !is_first_kernel_thread {
        let hierarchy = Groups::CgroupV1(controller.to_owned());
        let target = Target::Membership { task, hierarchy, mount: mount.to_owned() };
        let (name, cpus) = if is_member { (GROUP, &thread.cpus) } else { (OTHERS_GROUP, &sides.others) };
        let effect = format!("{} runs on CPU {cpus}", thread.name);
        return Some(Change::optional(target, format!("/{name}"), effect));
    }
    if is_member || thread.cpus.intersection(&sides.shielded).is_empty() {
        return None;
    }
    let new: CpuSet = without(&thread.cpus, sides);
    let effect = format!("{} runs on CPU {new}", thread.name);
    Some(Change::optional(Target::Affinity { task }, new.to_string(), effect))
}
