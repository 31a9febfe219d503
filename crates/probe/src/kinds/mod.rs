pub(crate) mod histograms;
pub(crate) mod tracer;
