//! Graphics devices are sampled while a cell is measured, and the requests to them disturb no probe.

use crate::mock::{MockMachine, PLAN, experiment, folder, options};
use whylate_host::HostRoot;
use whylate_runner::run;
use whylate_store::{Reader, assemble};

#[test]
fn graphics_devices_are_asked_before_and_after_the_probes_and_counted_meanwhile() {
    let (root, folder) = (folder(), folder());
    let files = [
        ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n"),
        ("power/runtime_status", "active\n"),
        ("mem_info_vram_used", "4096\n"),
        ("gpu_busy_percent", "37\n"),
    ];
    for (name, text) in files {
        let path = root.path().join("sys/class/drm/card1/device").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let path = folder.path().join("run");
    let machine = MockMachine { running: Some(HostRoot::at(root.path())), ..MockMachine::default() };
    run(&experiment(PLAN), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    for cell in &result.cells {
        let shown: Vec<_> =
            cell.gpus.iter().map(|it| (it.device.as_str(), it.quantity.as_str(), it.mean)).collect();
        assert_eq!(shown, [("card1", "busy_percent", 37.0), ("card1", "memory_bytes", 4096.0)]);
        // Two repeats of two probes, one after the other: the device before and after each, the counter also between.
        assert_eq!(cell.gpus.iter().map(|it| it.series.len()).collect::<Vec<_>>(), [8, 12]);
    }
    // Where the probes leave no CPU, nothing is asked while they measure.
    let everywhere =
        PLAN.replace("cpus = \"3\"", "cpus = \"0-3\"").replace("[[probe]]\nkind = \"stall\"\n", "");
    let everywhere = everywhere.replace("noise_floor = \"7ms\"", "noise_floor = \"0s\"");
    let path = folder.path().join("everywhere");
    run(&experiment(&everywhere), &path, &options(), &machine, &mut machine.audience()).unwrap();
    let result = assemble(&Reader::open(&path).unwrap()).unwrap();
    assert_eq!(result.cells[0].gpus.iter().map(|it| it.series.len()).collect::<Vec<_>>(), [4, 4]);
}
