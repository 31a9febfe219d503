//! Files that the tools wrote, or that their documentation shows, with their expected figures.

use std::path::{Path, PathBuf};
use whylate_core::WarningCode;
use whylate_core::quantity::{BUCKET_NS, EXTREMES, GAPS, HISTOGRAM_END_NS, LOST_NS, OVERRUNS};
use whylate_core::result::MeasureResult;
use whylate_import::{ImportError, read, tool};
use whylate_testing::says;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect("a file of this test")
}

fn imported(name: &str) -> MeasureResult {
    read(&path(name), text(name).as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// CPU, series, samples, min, p50, max: 0 if not known.
fn figures(result: &MeasureResult) -> Vec<(u32, &str, u64, u64, u64, u64)> {
    let cpus = result.probe.cpus.iter();
    let figures = cpus.map(|cpu| {
        let extremes = cpu.get(EXTREMES).unwrap_or_default();
        let known = cpu.quantiles.map(|it| (it.min_ns, (it.p50_ns + 500) / 1000 * 1000, it.max_ns));
        // The median is that of a bucket.
        let (min, p50, max) =
            known.unwrap_or((extremes.min_ns.unwrap_or(0), 0, extremes.max_ns.unwrap_or(0)));
        (cpu.cpu.0, cpu.series.as_deref().unwrap_or(""), cpu.samples, min, p50, max)
    });
    figures.collect()
}

#[test]
fn cyclictest_json_names_the_machine_and_the_cpu() {
    let result = imported("cyclictest.json");
    assert_eq!(
        result.tool_command.as_deref(),
        Some("cyclictest -q -l 200 -i 1000 -h 100 -a 0 -t 1 -p 10"),
        "without the names of its files"
    );
    assert_eq!(result.tool.as_deref(), Some("cyclictest 2.40"));
    assert_eq!(result.facts.kernel.release, "6.18.44-fc-v657");
    assert_eq!(figures(&result), [(0, "", 200, 21_000, 32_000, 441_000)]);
    let cpu = &result.probe.cpus[0];
    assert_eq!(cpu.quantiles.map(|figures| figures.mean_ns), Some(35_730.0));
    assert_eq!(cpu.histogram.iter().map(|(_, count)| count).sum::<u64>(), 200, "the one above its end, too");
    assert!(
        result.warnings.is_empty(),
        "one sample above the histogram is the largest: {:?}",
        result.warnings
    );
}

#[test]
fn cyclictest_text_with_and_without_a_histogram() {
    let result = imported("cyclictest.hist");
    assert_eq!(figures(&result), [(0, "", 200, 21_000, 32_000, 441_000)]);
    let result = imported("cyclictest_threads.txt");
    assert_eq!(figures(&result), [(0, "", 5000, 27_000, 0, 51_000)]);
    assert_eq!(result.probe.cpus[0].quantiles, None, "quantiles are not in it");
}

#[test]
fn samples_above_the_histogram_are_reported() {
    let file = text("cyclictest.hist").replace("Overflows: 00001", "Overflows: 00003");
    let result = read(Path::new("h"), file.as_bytes()).unwrap();
    assert_eq!(result.probe.cpus[0].samples, 202);
    assert!(
        result.warnings.iter().any(|it| it.text.contains("3 samples are above")),
        "{:?}",
        result.warnings
    );
}

#[test]
fn the_end_of_a_histogram_without_empty_buckets_is_that_of_the_command() {
    let end = |text: &str| {
        let result = read(Path::new("h"), text.as_bytes()).unwrap();
        result.probe.cpus[0].get(HISTOGRAM_END_NS)
    };
    let json = text("cyclictest.json");
    assert_eq!(end(&json), Some(100_000));
    assert_eq!(end(&json.replace("-h 100", "-H400")), Some(400_000));
    assert_eq!(end(&json.replace("-h 100 ", "")), Some(88_000), "at least above the last bucket");
    for other in ["-h 50", "-h 500"] {
        assert_eq!(end(&json.replace("-h 100", other)), Some(88_000), "it contradicts the samples: {other}");
    }
    assert_eq!(end(&json.replace("\"cycles\": 200", "\"cycles\": 199")), None);
    assert_eq!(end(&text("cyclictest.hist")), Some(100_000));
}

#[test]
fn nanoseconds_that_look_like_microseconds_are_reported() {
    let screen = "T: 0 ( 163) P:99 I:1000 C:   5000 Min:    900 Act: 3000 Avg: 2500 Max:   51000\n";
    let said = |text: &str| remarks(&read(Path::new("n"), text.as_bytes()).unwrap());
    let is_doubted = |text: &str| said(text).contains("longer than the interval (1.00 ms)");
    assert!(is_doubted(screen), "{}", said(screen));
    assert!(!is_doubted(&screen.replace("Avg: 2500", "Avg: 1000")));
    assert!(!is_doubted(&format!("$ cyclictest -qN\n{screen}")), "the option is known");
    let histogram = text("cyclictest.hist");
    assert!(is_doubted(&format!("{screen}{histogram}")));
    assert!(!is_doubted(&histogram));
    let means = histogram.lines().find(|line| line.starts_with("# Avg Latencies:")).unwrap();
    let large = means.split(' ').map(|word| if word.parse::<u64>().is_ok() { "02500" } else { word });
    let large = histogram.replace(means, &large.collect::<Vec<_>>().join(" "));
    assert!(said(&large).contains("(-N)"), "{}", said(&large));
    let verbose = text("cyclictest_v.txt").replace("Interval: 1500", "Interval: 1000");
    assert!(!is_doubted(&verbose));
    assert!(is_doubted(&format!("{verbose}       0:       5:   90000\n")));
}

#[test]
fn oslat_json_and_text_agree() {
    let (json, text) = (imported("oslat.json"), imported("oslat.txt"));
    assert_eq!((json.probe.probe.as_str(), json.tool.as_deref()), ("stall", Some("oslat 2.40")));
    assert_eq!(figures(&json), figures(&text));
    assert_eq!(json.probe.cpus[0].histogram, text.probe.cpus[0].histogram);
    assert_eq!(figures(&json)[0].5, 4_067_000);
    assert_eq!(json.probe.cpus[0].measured_ns, 998_000_000);
}

#[test]
fn rtla_histograms_and_tables() {
    let result = imported("rtla_timerlat_hist.txt");
    let found = figures(&result);
    let names: Vec<_> = found.iter().map(|it| (it.0, it.1, it.2, it.5)).collect();
    assert_eq!(
        names,
        [
            (0, "timerlat/irq", 3719, 111_944_000),
            (0, "timerlat/thread", 3719, 112_190_000),
            (1, "timerlat/irq", 3674, 111_861_000),
            (1, "timerlat/thread", 3674, 111_934_000),
        ]
    );
    let result = imported("rtla_osnoise_hist.txt");
    assert_eq!((figures(&result)[1].1, figures(&result)[1].5), ("osnoise", 418_164_000));
    let result = imported("rtla_timerlat_top.txt");
    assert_eq!(figures(&result)[2], (1, "timerlat/irq", 4078, 23_000, 0, 79_108_000));
    let result = imported("rtla_osnoise_top.txt");
    assert_eq!(figures(&result)[0], (0, "osnoise", 4, 0, 0, 44_321_000));
    let cpu = &result.probe.cpus[0];
    assert_eq!(
        (cpu.get(GAPS), cpu.get(LOST_NS), cpu.measured_ns),
        (Some(1265), Some(2_395_488_000), 4_032_480_000)
    );
}

#[test]
fn jitterdebugger_hwlatdetect_and_sysjitter() {
    let found = imported("jitterdebugger.json");
    assert_eq!(figures(&found)[1], (1, "", 3886, 3_000, 3_000, 18_000));
    let found = imported("hwlatdetect.txt");
    assert_eq!(figures(&found), [(0, "hwlat", 3, 9_000, 45_000, 46_000)]);
    assert_eq!(found.probe.cpus[0].measured_ns, 450_000_000_000);
    let found = imported("hwlatdetect_none.txt");
    assert_eq!((figures(&found)[0].2, found.probe.has_data()), (0, true));
    let found = imported("sysjitter.txt");
    assert_eq!(figures(&found)[1], (1, "", 10_130, 1_247, 1_000, 45_065));
    assert_eq!(found.probe.cpus[2].quantiles.map(|it| it.p9999_ns), Some(184_305));
    assert_eq!(found.probe.cpus[0].get(LOST_NS), Some(14_244_846));
    let found = imported("sysjitter2.txt");
    assert_eq!(figures(&found)[1], (3, "", 93_068_541_305, 1_000, 1_000, 40_000));
}

#[test]
fn hwlatdetect_that_names_cpus_and_lists_less_than_it_counts() {
    let file = |gaps: &str| {
        let text = text("hwlatdetect.txt");
        let head =
            text.split("ts: ").next().unwrap().replace("exceeding threshold: 3", "exceeding threshold: 5");
        read(
            Path::new("f"),
            format!("{}{gaps}", head.replace("Latency threshold: 0us", "Latency threshold: 7us")).as_bytes(),
        )
        .unwrap()
    };
    let found = file("ts: 1785918598.514060378, inner:0, outer:13, cpu:2\n");
    // The largest is known; three are at least as long as the threshold.
    assert_eq!(figures(&found), [(2, "hwlat", 5, 7_000, 7_000, 46_000)]);
    assert!(says("gaps-are-not-listed", &found.warnings[0].text), "{:?}", found.warnings);
    let found = file("ts: 1.5, inner:0, outer:13, cpu:2\nts: 2.5, inner:46, outer:1, cpu:3\n");
    assert!(says("gaps-on-cpus", &found.warnings[0].text), "{:?}", found.warnings);
    assert_eq!(found.probe.cpus[0].get(LOST_NS), None);
}

/// As it is without `column -t`, with `--verbose`, of a CPU that nothing interrupted.
#[test]
fn sysjitter_of_a_cpu_without_interruptions() {
    let columns = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_of_gaps = line.starts_with("int_");
        format!("{} {} {}\n", words[0], words[1], if is_of_gaps { "0" } else { words[2] })
    };
    let file: String = text("sysjitter.txt").lines().map(columns).collect();
    let file = format!("{file}frc_start: 8f3a1c22b4 8f3a1c9aa0\nfrc_stop: 95b8e1d01f 95b8e1e6cc\n");
    let found = read(Path::new("f"), file.as_bytes()).unwrap();
    assert_eq!(figures(&found), [(0, "", 10_001, 1_333, 1_000, 40_613), (1, "", 0, 0, 0, 0)]);
    let silent = &found.probe.cpus[1];
    assert_eq!((silent.quantiles, silent.get(EXTREMES), silent.get(LOST_NS)), (None, None, Some(0)));
    assert_eq!(silent.measured_ns, 9_987_652_245);
}

/// The place at which a damaged file is refused.
fn refused(text: &str) -> (usize, usize, String) {
    match read(Path::new("f"), text.as_bytes()) {
        Err(ImportError::Broken { line, column, message, .. }) => (line, column, message),
        other => panic!("it is refused with its place: {other:?}"),
    }
}

#[test]
fn damaged_files_are_refused_where_they_are_damaged() {
    let json = text("cyclictest.json");
    let (line, column, message) = refused(&json.replace("\"24\": 4,", "\"24\": -4,"));
    assert_eq!((line, column), (24, 16), "{message}");
    let (_, _, message) = refused(&json.replace("\"cycles\": 200", "\"cycles\": 20"));
    assert!(message.contains("the tool counted 20"), "{message}");
    let (line, ..) = refused(&json[..json.len() / 2]);
    assert!(line > 10, "{line}");
    let (line, column, message) = refused(&text("cyclictest.hist").replace("000024 000004", "000024 0x0004"));
    assert_eq!((line, column), (26, 8), "{message}");
    let half = text("rtla_timerlat_hist.txt");
    let (line, _, message) = refused(&half[..half.len() / 2]);
    assert!(line > 50 && message.contains("cut off"), "{line} {message}");
    let (line, _, message) = refused(&text("sysjitter.txt").replace("1247        1299", "1247"));
    assert_eq!(line, 8, "{message}");
}

#[test]
fn what_no_tool_wrote_is_foreign() {
    for text in ["", "{}", "{\"format\": \"whylate.load/1\"}", "hello\n", "# tracer: nop\n#\n"] {
        assert_eq!(tool(text.as_bytes()), None, "{text}");
        assert!(matches!(read(Path::new("f"), text.as_bytes()), Err(ImportError::Foreign { .. })), "{text}");
    }
    assert_eq!(tool(&[0xff, 0xfe]), None);
}

/// What the text does not say, and what its figures depend on.
fn remarks(result: &MeasureResult) -> String {
    result.warnings.iter().map(|it| format!("{}: {}\n", it.code, it.text)).collect()
}

#[test]
fn xenomai_and_evl_count_by_their_last_line() {
    let result = imported("xenomai_latency.txt");
    assert_eq!(figures(&result), [(0, "", 30_000, 1_574, 0, 375_502)]);
    let cpu = &result.probe.cpus[0];
    assert_eq!((cpu.get(OVERRUNS), cpu.get(EXTREMES).unwrap().mean_ns), (Some(26), Some(3_290.0)));
    let result = imported("evl_latmus.txt");
    assert_eq!(figures(&result), [(1, "", 0, 198, 0, 2_541)]);
    assert!(remarks(&result).contains("RTS"));
}

#[test]
fn nanoseconds_of_stress_ng_are_no_microseconds() {
    let result = imported("stress_ng_cyclic.txt");
    assert_eq!(figures(&result), [(0, "", 10_000, 2_688, 14_000, 5_701_735)]);
    let quantiles = result.probe.cpus[0].quantiles.unwrap();
    assert_eq!((quantiles.p50_ns, quantiles.p999_ns), (13_945, 1_798_633));
    assert!(remarks(&result).contains("one sample"));
}

#[test]
fn lava_and_what_no_late_task_makes() {
    let result = imported("lava.txt");
    assert_eq!(figures(&result), [(0, "", 0, 9_297_000, 0, 9_398_000)]);
    assert!(remarks(&result).contains("HIGH_RES_TIMERS"));
    let away =
        text("lava.txt").replace("9398.0000000000", "269999981.0").replace("9303.0000000000", "134995482=20");
    let away = away.replace("Measurement: 9297.0000000000 us", "Measurement: 1.0 =\nus");
    let result = read(Path::new("f"), away.as_bytes()).unwrap();
    assert_eq!(figures(&result), [(0, "", 0, 1_000, 0, 269_999_981_000)]);
    assert!(remarks(&result).contains("kept growing"), "{}", remarks(&result));
}

#[test]
fn histograms_of_the_kernel_and_of_rteval() {
    for name in ["latency_hist.txt", "rteval.xml"] {
        assert_eq!(figures(&imported(name)), [(0, "", 1003, 1_000, 3_000, 56_000)], "{name}");
    }
    let result = imported("rteval.xml");
    assert_eq!(
        (result.facts.host.as_str(), result.facts.kernel.release.as_str()),
        ("bench", "5.14.0-70.rt21")
    );
}

#[test]
fn several_runs_in_one_file_stay_apart() {
    let result = imported("jitterdebugger_runs.txt");
    assert_eq!(
        figures(&result),
        [
            (0, "run 1 (cfs)", 1_799_000, 2_000, 0, 50_572_000),
            (1, "run 1 (cfs)", 1_799_000, 2_000, 0, 867_000),
            (0, "run 2 (bore)", 1_799_100, 2_000, 0, 19_347_000),
            (1, "run 2 (bore)", 1_799_100, 2_000, 0, 467_000),
        ]
    );
}

#[test]
fn a_line_for_each_sample_and_one_that_is_cut() {
    let result = imported("cyclictest_v.txt");
    assert_eq!(figures(&result), [(0, "", 5, 6_000, 6_000, 21_000), (1, "", 2, 3_000, 3_000, 9_000)]);
    assert!(
        remarks(&result).contains("lines that are not samples were left out: 1,")
            && remarks(&result).contains("Interval")
    );
}

#[test]
fn linuxcnc_and_ros2() {
    let found = imported("linuxcnc.txt");
    assert_eq!(figures(&found), [(0, "servo", 0, 0, 0, 43_318), (0, "base", 0, 0, 0, 16_210)]);
    assert_eq!(figures(&imported("ros2_performance.csv")), [(0, "", 2000, 29_900, 0, 2_411_000)]);
}

#[test]
fn hdr_histogram_logs() {
    let result = imported("hdr.hlog");
    let (_, _, samples, _, _, max) = figures(&result)[0];
    assert!(samples > 1000 && max == 2_769_000, "{samples} {max}");
    let tagged = text("hdr.hlog").replace("\n1.134,", "\nTag=A,1.134,");
    let result = read(Path::new("f"), tagged.as_bytes()).unwrap();
    let found = figures(&result);
    assert_eq!((found.len(), found[0].1, found[1].1), (2, "", "A"));
    assert_eq!(found[0].2 + found[1].2, samples);
    let old = text("hdr.hlog").replace("HISTFA", "HISTiQ");
    let result = read(Path::new("f"), old.as_bytes()).unwrap();
    assert_eq!((figures(&result)[0].2, figures(&result)[0].5), (0, 2_769_000));
}

/// V0 and V1 as their libraries write them: the words of V0 go on to the end, V1 has a length before them.
#[test]
fn hdr_histograms_of_all_ages() {
    use std::io::Write;
    let log = |cookie: i32, head: &[u8], size: usize| {
        let mut plain = (cookie | (size as i32) << 4).to_be_bytes().to_vec();
        plain.extend_from_slice(head);
        // 64 and more are two apart: index 70 is 76 and 77.
        for index in 0..80i64 {
            let count = match index {
                5 => 7i64,
                70 => 2,
                _ => 0,
            };
            plain.extend_from_slice(&count.to_be_bytes()[8 - size..]);
        }
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&plain).unwrap();
        let packed = packed.finish().unwrap();
        let mut bytes = ((cookie + 1) | (size as i32) << 4).to_be_bytes().to_vec();
        bytes.extend_from_slice(&(packed.len() as i32).to_be_bytes());
        bytes.extend_from_slice(&packed);
        let text = encoded(&bytes);
        format!("#[Histogram log format version 1.01]\n0.1,1.0,0.000077,{text}\n")
    };
    let number = |value: i64| value.to_be_bytes().to_vec();
    // Digits (1: 32 sub-buckets), lowest, highest, samples.
    let digits = 1i32.to_be_bytes();
    let v0 = [digits.to_vec(), number(1), number(1 << 30), number(9)].concat();
    for size in [2, 4, 8] {
        let length = (80 * size as i32).to_be_bytes();
        let ratio = 1f64.to_be_bytes();
        let v1 = [length.to_vec(), vec![0; 4], digits.to_vec(), number(1), number(1 << 30), ratio.to_vec()]
            .concat();
        for text in [log(0x1c84_9308, &v0, size), log(0x1c84_9301, &v1, size)] {
            let result = read(Path::new("f"), text.as_bytes()).unwrap();
            let cpu = &result.probe.cpus[0];
            assert_eq!((cpu.samples, cpu.quantiles.map(|it| it.p50_ns)), (9, Some(5)), "{size} {text}");
            assert_eq!(cpu.quantiles.map(|it| it.max_ns), Some(77));
        }
    }
}

fn encoded(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |part: &[u8]| {
        let word = part.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        (0..=part.len())
            .map(move |at| char::from(LETTERS[(word >> (18 - 6 * at) & 63) as usize]))
            .collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Results as mails, books and shells change them.
#[test]
fn broken_quoted_and_commented_rows_are_whole() {
    let of = |text: &str| figures_of(text).unwrap_or_else(|| panic!("{text}"));
    let quoted = "> T: 0 ( 9615) P:90 I:1000 C:   8715 Min:      1 Act:    1 Avg:    2 Max:\n>      14\n\
                  > T: 1 ( 9616) P:90 I:1500 C:   5808 Min:      1 Act:    5 Avg:    2\n> Max:      28\n";
    assert_eq!(of(quoted), [(0, 8715, 1_000, 14_000), (1, 5808, 1_000, 28_000)]);
    let commented: String = text("hwlatdetect.txt").lines().map(|line| format!("# {line}\n")).collect();
    assert_eq!(of(&commented), of(&text("hwlatdetect.txt")));
    let top =
        "Timer Latency\n 1 #100 | 1 1 2 9 | 5 5\n7 12 <--- CPU with spike\n 2 #101 | 0 1 2 8 | 5 4 7 11\n";
    assert_eq!(of(top)[..2], [(1, 100, 1_000, 9_000), (1, 100, 5_000, 12_000)]);
    let hist = "# RTLA timerlat histogram\nIndex IRQ-000 Thr-000\nIRQ-001 Thr-001\n1 10 0\n10 0\n2 0 10\n0 10\n\
                over: 0 0\n0 0\ncount: 10 10\n10 10\nmin: 1 2\n1 2\navg: 1.25 2\n1 2\nmax: 1 2\n1 2\n";
    assert_eq!(
        of(hist),
        [(0, 10, 1_000, 1_000), (0, 10, 2_000, 2_000), (1, 10, 1_000, 1_000), (1, 10, 2_000, 2_000)]
    );
    let shell = "stress-ng: info: [7] cyclic: sched SCHED_FIFO: 100 ns delay, \\\n100 samples\n\
                 stress-ng: info: [7] cyclic:   min: 3564 ns, max: 24051 ns, std.dev. 1.0\n";
    assert_eq!(of(shell), [(0, 100, 3_564, 24_051)]);
    // Two parts of one number look like two numbers.
    let cut = "Operating System Noise\n 0 #4 4000000 37712 99.05720 10998 555 7624 0 4011 34 2\n4\n";
    assert_eq!(figures_of(cut), None);
}

/// CPU, samples, min, max.
fn figures_of(text: &str) -> Option<Vec<(u32, u64, u64, u64)>> {
    let result = read(Path::new("f"), text.as_bytes()).ok()?;
    Some(figures(&result).into_iter().map(|it| (it.0, it.2, it.3, it.5)).collect())
}

#[test]
fn rt_tests_schbench_and_old_oslat() {
    let pairs = "#0: ID2107, P99, CPU2, I1000; #1: ID2108, P99, CPU2, Cycles 9523\n#2: ID2109, P98, CPU3, I1500; #3: ID2110, P98, CPU3, Cycles 6350\n\
                 #1 -> #0, Min    3, Cur    4, Avg    4, Max   23\n#3 -> #2, Min    3, Cur    5, Avg    4, Max   31\n";
    assert_eq!(figures_of(pairs).unwrap(), [(2, 9523, 3_000, 23_000), (3, 6350, 3_000, 31_000)]);
    let bench = "Wakeup Latencies percentiles (usec) runtime 10 (s) (100 total samples)\n  50.0th: 4 (50 samples)\n* 99.0th: 70 (9 samples)\n  min=1, max=90\n\
                 RPS percentiles (requests) runtime 10 (s) (11 total samples)\n  50.0th: 9264 (2 samples)\n  min=1, max=9999\n";
    assert_eq!(figures_of(bench).unwrap(), [(0, 100, 1_000, 90_000)]);
    let oslat = "core_i:    2 3\ncpu_mhz:    2197 2197\n001 (us):    900 800\n002 (us):    51 52\n032 (us):    0 0\nmaxlat:    2 2 (us)\nruntime:    1.5 1.5 (sec)\n";
    let result = read(Path::new("f"), oslat.as_bytes()).unwrap();
    assert_eq!((result.tool.as_deref(), result.probe.cpus[1].measured_ns), (Some("oslat"), 1_500_000_000));
    assert_eq!(figures(&result)[1], (3, "", 852, 1_000, 1_000, 2_000));
}

#[test]
fn runs_of_every_form_stay_apart() {
    for (name, runs) in
        [("cyclictest.hist", 2), ("rtla_timerlat_hist.txt", 3), ("hwlatdetect.txt", 2), ("oslat.txt", 2)]
    {
        let one = imported(name);
        let result = read(&path(name), text(name).repeat(runs).as_bytes()).unwrap();
        assert_eq!(result.probe.cpus.len(), one.probe.cpus.len() * runs, "{name}");
        let firsts = figures(&result);
        for (found, alone) in firsts.iter().zip(figures(&one).iter().cycle()) {
            assert_eq!((found.0, found.2, found.3, found.5), (alone.0, alone.2, alone.3, alone.5), "{name}");
        }
    }
    let screens = "root@box:~# taskset -c 0 cyclictest -N\nT: 0 ( 7163) P:99 I:1000 C:  10000 Min:  1400 Act: 57 Avg: 5500 Max:  13100\n\
                   root@box:~# taskset -c 2 cyclictest -N\nT: 0 ( 7167) P:99 I:1000 C:  10000 Min:  1400 Act: 44 Avg: 4200 Max: 6700\n";
    let result = read(Path::new("f"), screens.as_bytes()).unwrap();
    let found = figures(&result);
    assert!(found[1].1.contains("taskset -c 2"), "{found:?}");
    assert_eq!((found[0].5, found[1].5), (13_100, 6_700), "nanoseconds");
}

/// In each row of each form, min, quantiles and max are in order.
#[test]
fn quantiles_are_in_order_and_as_fine_as_the_buckets() {
    let result = imported("rtla_timerlat_hist_user.txt");
    let found = figures(&result);
    assert_eq!(found.len(), 6, "the sums behind ALL are no CPU");
    assert_eq!((found[2].1, found[2].2, found[2].5), ("timerlat/user", 1000, 24_000));
    let cpu = &result.probe.cpus[1];
    assert_eq!((cpu.get(BUCKET_NS), cpu.quantiles.unwrap().p50_ns), (Some(10_000), 9_000));
    for entry in std::fs::read_dir(path("")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(result) = read(&path, &std::fs::read(&path).unwrap()) else { continue };
        for cpu in &result.probe.cpus {
            let Some(it) = cpu.quantiles else { continue };
            let row = [it.min_ns, it.p50_ns, it.p99_ns, it.p999_ns, it.p9999_ns, it.max_ns];
            assert!(row.is_sorted(), "{}: {row:?}", path.display());
        }
    }
}

#[test]
fn nothing_seen_is_a_result() {
    let new = text("rtla_osnoise_hist_empty.txt");
    let old = new.replace(": 0", ":").replace("Duration:", "Duration:   0 00:00:05");
    for text in [new, old] {
        let result = read(Path::new("f"), text.as_bytes()).unwrap();
        assert!(result.probe.cpus.is_empty(), "no CPU is invented");
        assert_eq!(result.warnings[0].code, WarningCode::NothingSeen);
        assert!(result.warnings[0].text.contains("5 s"));
    }
}

#[test]
fn a_measuring_thread_of_low_priority_is_reported() {
    let result = imported("cyclictest_smp_typo.txt");
    assert_eq!(figures(&result), [(0, "", 10_000, 9_000, 0, 129_000)]);
    assert!(remarks(&result).contains("priority 2") && remarks(&result).contains("-smp"));
}

#[test]
fn tables_that_are_no_measurement_are_named_with_their_worst() {
    let cases = [
        (
            "Tracing run queue latency higher than 10000 us\nTIME     COMM             TID           LAT(us)\n\
             04:16:32 cc1              12924           12739\n04:16:32 gcc x            13678           23519\n",
            "runqslower",
            "23.5 ms",
        ),
        (
            "Finding critical section with preempt disabled for > 500us\n===\nTASK: irq/296-cs35l36 (pid   666 tid   666) Total Time: 732.657  us\n\
             \nSection start: schedule -> schedule\n",
            "criticalstat",
            "733 us: irq/296-cs35l36 with preemption disabled",
        ),
        (
            "TIME     STAGE                SOFTIRQ  LAT(us)        CPU    COMM\n14:42:11 irq(hard) to softirq tasklet  95280          0      cat\n",
            "softirqslower",
            "95.3 ms",
        ),
        (
            "     usecs               : count    distribution\n         0 -> 1          : 233      |****|\n    16384 -> 32767      : 2        |*|\n",
            "runqlat",
            "16384 -> 32767",
        ),
        (
            " Task                  |   Runtime ms  |  Count   | Avg delay ms    | Max delay ms    | Max delay start |\n\
              chrome:(2)            |      0.162 ms |        6 | avg:   0.012 ms | max:   1.430 ms | max start: 1.5 s |\n",
            "perf sched latency",
            "1.43 ms: chrome:(2)",
        ),
    ];
    for (text, tool, worst) in cases {
        let Err(ImportError::Named { tool: found, worst: said, to_do, .. }) =
            read(Path::new("f"), text.as_bytes())
        else {
            panic!("{tool} is not named");
        };
        assert!(found.contains(tool) && said.contains(worst) && !to_do.is_empty(), "{found}: {said}");
    }
}

/// With any byte missing or changed: an answer or a refusal, and no panic.
#[test]
fn no_damage_ends_the_program() {
    for entry in std::fs::read_dir(path("")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 400 + 1) {
            let _ = read(Path::new("f"), &bytes[..at]);
            for byte in [b'9', b' ', b'\n', b'{', 0] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                let _ = read(Path::new("f"), &changed);
            }
        }
    }
}

/// A log of all samples shows that threads are late each second, and all at the same moment.
#[test]
fn moments_of_late_samples_show_a_rhythm() {
    let log = |late: fn(u64) -> bool| {
        let mut text =
            "Max CPUs = 3\nThread 0 Interval: 1000\nThread 1 Interval: 1000\nThread 2 Interval: 1000\n"
                .to_owned();
        for cycle in 0..8_000u64 {
            for thread in 0..3 {
                let us = if late(cycle) { 300 + thread } else { 4 + cycle % 3 };
                text.push_str(&format!("{thread:8}:{cycle:8}:{us:8}\n"));
            }
        }
        let found = read(Path::new("v"), text.as_bytes()).unwrap();
        found.warnings.iter().filter(|it| it.code == WarningCode::KnownSignature.name()).count()
    };
    // For the maxima, the rhythm and the common moments.
    assert_eq!(log(|cycle| cycle % 1000 == 500), 3);
    assert_eq!(log(|cycle| cycle % 731 == 500), 2);
    assert_eq!(log(|_| false), 0);
}
