//! Events of high-resolution timers.

use super::{Text, scan, symbol};
use crate::event::EventKind;
use crate::parse::text::texts::Texts;

fn timer(text: &Text<'_>) -> Option<u64> {
    scan::hexadecimal(scan::value(text.fields, b"hrtimer=")?)
}

pub(super) fn start(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    Some(EventKind::TimerStart {
        timer: timer(text)?,
        function: symbol(scan::value(text.fields, b"function=")?, texts)?,
        expires_ns: scan::whole(scan::value(text.fields, b"expires=")?)?,
    })
}

pub(super) fn cancel(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    timer(text).map(|timer| EventKind::TimerCancel { timer })
}

pub(super) fn expire(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    Some(EventKind::TimerExpire {
        timer: timer(text)?,
        function: symbol(scan::value(text.fields, b"function=")?, texts)?,
        now_ns: scan::whole(scan::value(text.fields, b"now=")?)?,
    })
}

pub(super) fn expire_exit(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    timer(text).map(|timer| EventKind::TimerExpireExit { timer })
}
