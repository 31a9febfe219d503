// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread `control` that works each 10 ms; in one of ten cycles `Planner::replan` takes 5 ms. See classes.c for what it prints.
//!
//!   chrt -f 50 own CYCLES

use std::hint::black_box;
use std::time::{Duration, Instant};

struct Planner {
    rounds: u64,
    value: u64,
}

impl Planner {
    #[inline(never)]
    fn replan(&mut self) {
        for _ in 0..self.rounds {
            self.value = black_box(self.value.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3));
        }
    }

    #[inline(never)]
    fn filter(&mut self) {
        for _ in 0..self.rounds / 25 {
            self.value = black_box(self.value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }

    #[inline(never)]
    fn update(&mut self, nth: usize) {
        self.filter();
        if nth % 10 == 5 {
            self.replan();
        }
        self.value += 1;
    }
}

fn control(cycles: usize, mut planner: Planner) {
    let begin = Instant::now() + Duration::from_millis(500);
    let mut took = Vec::with_capacity(cycles);
    for nth in 0..cycles {
        let due = begin + Duration::from_millis(10) * nth as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        planner.update(nth);
        took.push(due.elapsed().as_nanos().to_string());
    }
    println!("0 {cycles} {}\ndone", took.join(" "));
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let cycles = words[1].parse().unwrap();
    let mut planner = Planner { rounds: 1_000_000, value: 1 };
    let times = (0..5).map(|_| {
        let from = Instant::now();
        planner.replan();
        from.elapsed().as_nanos() as u64
    });
    let best = times.min().unwrap();
    planner.rounds = planner.rounds * 5_000_000 / best;
    let thread = std::thread::Builder::new().name("control".to_owned());
    thread.spawn(move || control(cycles, planner)).unwrap().join().unwrap();
    std::thread::sleep(Duration::from_secs(1));
}
