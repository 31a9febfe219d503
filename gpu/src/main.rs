//! The helper of whylate for graphics processors.
//!
//! `whylate-gpu internal-load` is the process of one `gpu` load, and of loads in memory that only drivers have: it
//! speaks the lines of JSON of every load on its standard streams. `whylate-gpu list` prints the devices and what each
//! can do, as JSON. `whylate-gpu copies` measures the table of copies from and to memory of the drivers, which only
//! this process has. It is an executable of its own because drivers are loaded at run time, which a static program
//! cannot do.
//!
//! Each load checks its own results: wrong sums, products, copies and images make it fail.

mod copies;
mod cuda;
mod vulkan;
mod work;

use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use whylate_core::plan::GpuWork;
use whylate_host::HostRoot;
use work::why_not;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("internal-load") => {
            whylate_sys::memory::typed::add(copies::BACKENDS);
            whylate_load::gpu_main(HostRoot::real(), std::io::stdin(), std::io::stdout(), work::start)
        }
        Some("list") => print(&devices()),
        Some("backends") => print(&copies::backends()),
        Some("copies") => copies::execute(),
        _ => {
            let text = "whylate-gpu is the helper of `whylate load gpu` and `whylate copy`: put it next to whylate, or name it in WHYLATE_GPU";
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(64)
        }
    }
}

fn print(value: &serde_json::Value) -> ExitCode {
    match writeln!(std::io::stdout(), "{value}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Every device, with the loads that can run there and why others cannot.
fn devices() -> serde_json::Value {
    let listed = vulkan::Vulkan::load().and_then(|vulkan| vulkan::list(&vulkan));
    let (listed, reason) = match listed {
        Ok(listed) => (listed, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let mut devices: Vec<_> = listed
        .iter()
        .map(|device| {
            let loads: serde_json::Map<_, _> = GpuWork::ALL
                .into_iter()
                .map(|work| (work.name().to_owned(), json!(why_not(device, work).unwrap_or_default())))
                .collect();
            let memory: Vec<&str> = device.memory.iter().map(|kind| kind.name()).collect();
            json!({
                "number": device.number, "name": device.name, "kind": device.kind, "driver": device.driver,
                "memory_bytes": device.memory_bytes, "memory": memory, "loads": loads,
            })
        })
        .collect();
    devices.extend(cuda_devices());
    json!({"format": "whylate.gpus/1", "version": env!("CARGO_PKG_VERSION"), "devices": devices, "reason": reason})
}

/// The same for the devices that CUDA finds: none without such a driver.
fn cuda_devices() -> Vec<serde_json::Value> {
    let of = |work: GpuWork| match work::cuda::WORKS.contains(&work) {
        true => String::new(),
        false => "it is done by Vulkan".to_owned(),
    };
    let loads: serde_json::Map<_, _> =
        GpuWork::ALL.into_iter().map(|work| (work.name().to_owned(), json!(of(work)))).collect();
    let device = |listed: cuda::Listed| {
        json!({
            "number": listed.number, "name": listed.name, "kind": "cuda", "driver": listed.driver,
            "memory_bytes": listed.memory_bytes, "memory": ["device", "pinned", "write-combined", "managed"], "loads": loads.clone(),
        })
    };
    cuda::list().unwrap_or_default().into_iter().map(device).collect()
}
