//! BPF programs, their loader, and what they report: latency histograms and what took a CPU.
