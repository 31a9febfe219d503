//! Reports what the threads of a load achieve, interval by interval, until the end.

use crate::child::{LoadContext, LoadEvent, after};
use crate::error::LoadError;
use crate::protocol::Message;
use whylate_core::MonoTime;
use whylate_core::record::RateRecord;
use whylate_sys::clock;

/// A last interval shorter than this is not worth a rate.
const LAST_INTERVAL_NS_MIN: u64 = 10_000_000;

/// Sends a rate per interval until the load is stopped or its duration is over. `total` is what was done so far;
/// `health`: what is wrong with its threads.
pub(crate) fn report(
    context: &mut LoadContext,
    begin: MonoTime,
    total: &dyn Fn() -> u64,
    health: &dyn Fn() -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let end = context.end(begin);
    let mut last = (begin, total());
    let mut tick = after(begin, context.interval.0);
    loop {
        let stop = match context.event_until(tick.min(end)) {
            Some(LoadEvent::Failed(error)) => return Err(error),
            Some(LoadEvent::Stop) => true,
            Some(_) => continue,
            None => clock::now() >= end,
        };
        let now = (clock::now(), total());
        let interval_ns = now.0.0 - last.0.0;
        if !stop || interval_ns >= LAST_INTERVAL_NS_MIN {
            let value = (now.1 - last.1) as f64 * 1e9 / interval_ns.max(1) as f64;
            let listened = context.tell(&Message::Rate(RateRecord { at_ns: now.0.0, interval_ns, value }));
            if !listened {
                return Ok(());
            }
            last = now;
        }
        if stop {
            return Ok(());
        }
        health()?;
        tick = after(tick, context.interval.0).max(now.0);
    }
}
