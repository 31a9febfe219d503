//! Cached answers of a lake: readers of the same question wait for one answer, and an old answer is shown until a
//! newer one arrives.

use crate::error::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};
use whylate_farm::AnswerRows;

/// Answers a statement, or says why it does not.
pub type Ask = Box<dyn Fn(&str) -> Result<AnswerRows, String> + Send + Sync>;

/// An older answer is shown while a new one is fetched.
const AGE_MAX: Duration = Duration::from_secs(600);
/// An answer that is newer than this is not fetched again.
const AGE_MIN: Duration = Duration::from_secs(5);
/// The first reader waits this long before the page says that the lake is being asked.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// The most answers that are kept.
const KEPT_MAX: usize = 64;
/// The most engines that run at once: each takes all CPUs that it finds.
const ENGINES_MAX: usize = 2;

/// The cached answers, by statement.
pub(crate) struct Answers {
    ask: Ask,
    kept: Mutex<HashMap<String, KeptAnswer>>,
    /// Notified whenever an engine has answered.
    answered: Notify,
    engines: Semaphore,
    /// How long the first reader waits.
    wait_max: Duration,
}

/// The cached state of a statement.
#[derive(Default)]
struct KeptAnswer {
    rows: Option<(Arc<AnswerRows>, Instant)>,
    failed: Option<(String, Instant)>,
    asking: Option<Instant>,
}

/// The current state of a statement, for a page.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// An answer of that age; a newer one may be on its way, or have failed.
    Rows { rows: Arc<AnswerRows>, age: Duration, is_asking: bool, failed: Option<String> },
    /// The first answer has taken this long so far.
    Asking(Duration),
    /// There is no answer.
    Failed(String),
}

impl KeptAnswer {
    /// Whether an engine has to be asked; `again`: a reader wants a newer answer.
    fn needs(&self, again: bool) -> bool {
        let newest = [self.rows.as_ref().map(|it| it.1), self.failed.as_ref().map(|it| it.1)];
        let age = newest.into_iter().flatten().max().map(|at| at.elapsed());
        let age_max = if again || self.rows.is_none() { AGE_MIN } else { AGE_MAX };
        self.asking.is_none() && age.is_none_or(|age| age >= age_max)
    }

    /// `None` if there is nothing to show except that the answer is pending.
    fn said(&self) -> Option<Said> {
        let failed = self.failed.as_ref().map(|it| it.0.clone());
        match (&self.rows, failed) {
            (Some((rows, at)), failed) => Some(Said::Rows {
                rows: rows.clone(),
                age: at.elapsed(),
                is_asking: self.asking.is_some(),
                failed,
            }),
            (None, Some(why)) if self.asking.is_none() => Some(Said::Failed(why)),
            (None, _) => None,
        }
    }
}

impl Answers {
    pub(crate) fn new(ask: Ask) -> Self {
        let engines = Semaphore::new(ENGINES_MAX);
        Self { ask, kept: Mutex::default(), answered: Notify::new(), engines, wait_max: WAIT_MAX }
    }

    /// The state of a statement that was begun.
    pub(crate) async fn get(&self, sql: &str) -> Said {
        let begun = Instant::now();
        loop {
            // Listens before it looks, so that no notification in between is missed.
            let answered = self.answered.notified();
            if let Some(said) = self.all().get(sql).and_then(KeptAnswer::said) {
                return said;
            }
            let left = self.wait_max.saturating_sub(begun.elapsed());
            if left.is_zero() || tokio::time::timeout(left, answered).await.is_err() {
                let since = self.all().get(sql).and_then(|kept| kept.asking);
                return Said::Asking(since.map(|at| at.elapsed()).unwrap_or_default());
            }
        }
    }

    /// The cached answer; asks nothing.
    pub(crate) fn known(&self, sql: &str) -> Option<Arc<AnswerRows>> {
        Some(self.all().get(sql)?.rows.as_ref()?.0.clone())
    }

    /// Asks an engine if there is no answer, if the answer is old or a newer one is wanted (`again`), and if no
    /// engine is working on it.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if the maximum number of other statements is being asked.
    pub(crate) fn begin(self: &Arc<Self>, sql: &str, again: bool) -> Result<(), Refusal> {
        let mut all = self.all();
        if all.get(sql).is_some_and(|kept| !kept.needs(again)) {
            return Ok(());
        }
        if !all.contains_key(sql) && all.len() >= KEPT_MAX {
            let idle = all.iter().filter(|(_, kept)| kept.asking.is_none());
            let oldest = idle.min_by_key(|(_, kept)| kept.rows.as_ref().map(|it| it.1));
            let oldest = oldest.map(|(sql, _)| sql.clone()).ok_or(Refusal::Busy)?;
            all.remove(&oldest);
        }
        all.entry(sql.to_owned()).or_default().asking = Some(Instant::now());
        let (answers, sql) = (self.clone(), sql.to_owned());
        tokio::spawn(async move {
            let _engine = answers.engines.acquire().await;
            let (asked, of) = (answers.clone(), sql.clone());
            let said = tokio::task::spawn_blocking(move || (asked.ask)(&of)).await;
            answers.keep(&sql, said.unwrap_or_else(|error| Err(error.to_string())));
        });
        Ok(())
    }

    fn keep(&self, sql: &str, said: Result<AnswerRows, String>) {
        let mut all = self.all();
        let kept = all.entry(sql.to_owned()).or_default();
        kept.asking = None;
        match said {
            Ok(rows) => (kept.rows, kept.failed) = (Some((Arc::new(rows), Instant::now())), None),
            Err(why) => kept.failed = Some((why, Instant::now())),
        }
        drop(all);
        self.answered.notify_waiters();
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, KeptAnswer>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn rows(count: usize) -> AnswerRows {
        AnswerRows { columns: vec!["n".to_owned()], rows: vec![vec![count.into()]], ..AnswerRows::default() }
    }

    /// Answers, after a moment, with the number of times that it was asked.
    fn counting(wait: Duration, wait_max: Duration) -> (Arc<Answers>, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |_: &str| {
            std::thread::sleep(wait);
            Ok(rows(count.fetch_add(1, Ordering::SeqCst) + 1))
        };
        (Arc::new(Answers { wait_max, ..Answers::new(Box::new(answer)) }), asked)
    }

    async fn get(answers: &Arc<Answers>, sql: &str, again: bool) -> Said {
        answers.begin(sql, again).unwrap();
        answers.get(sql).await
    }

    #[tokio::test]
    async fn readers_of_the_same_share_one_answer() {
        let (answers, asked) = counting(Duration::from_millis(50), WAIT_MAX * 10);
        let gets = (0..20).map(|_| {
            let answers = answers.clone();
            tokio::spawn(async move { get(&answers, "a", true).await })
        });
        for get in gets.collect::<Vec<_>>() {
            let said = get.await.unwrap();
            assert!(matches!(&said, Said::Rows { rows, .. } if **rows == self::rows(1)), "{said:?}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(matches!(get(&answers, "b", false).await, Said::Rows { .. }));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(answers.known("a").is_some() && answers.known("c").is_none());
    }

    #[tokio::test]
    async fn no_reader_waits_for_long_and_the_answer_still_comes() {
        let (answers, asked) = counting(Duration::from_millis(100), Duration::ZERO);
        assert!(matches!(get(&answers, "a", false).await, Said::Asking(_)));
        while !matches!(get(&answers, "a", false).await, Said::Rows { .. }) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_number_of_kept_answers_is_limited() {
        let (answers, _) = counting(Duration::from_millis(200), Duration::ZERO);
        for index in 0..KEPT_MAX {
            answers.begin(&index.to_string(), false).unwrap();
        }
        assert!(matches!(answers.begin("one more", false), Err(Refusal::Busy)));
        answers.keep("7", Ok(rows(7)));
        answers.begin("one more", false).unwrap();
        assert_eq!(answers.all().len(), KEPT_MAX);
        assert!(answers.known("7").is_none(), "the only one without a waiting reader is gone");
    }

    #[test]
    fn old_answers_are_shown_and_asked_for_anew() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let kept =
            |seconds| KeptAnswer { rows: Some((Arc::new(rows(1)), ago(seconds))), ..KeptAnswer::default() };
        assert!(KeptAnswer::default().needs(false));
        assert!(!kept(60).needs(false) && kept(60).needs(true) && kept(700).needs(false));
        assert!(!kept(1).needs(true), "it was asked a moment ago");
        let asking = KeptAnswer { asking: Some(ago(1)), ..kept(700) };
        assert!(!asking.needs(true) && matches!(asking.said(), Some(Said::Rows { is_asking: true, .. })));
        let failed = |seconds| KeptAnswer {
            failed: Some(("no engine".to_owned(), ago(seconds))),
            ..KeptAnswer::default()
        };
        assert!(!failed(1).needs(false) && failed(60).needs(false));
        assert!(matches!(failed(1).said(), Some(Said::Failed(why)) if why == "no engine"));
    }
}
