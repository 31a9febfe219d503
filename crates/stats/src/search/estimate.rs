//! How many repeats a search takes, estimated before it begins: the search itself, on a machine without noise.

use super::{Figure, Search};

impl Search {
    /// Repeats to the end if the values do not vary: with one arm that halves them, or with none that changes
    /// anything. If values vary, the search takes longer when several arms look good, and less when none does.
    pub fn repeats_left(&self, one_helps: bool) -> u32 {
        let mut search = self.clone();
        let good = self.ranked.first().or(self.base.first()).copied().filter(|_| one_helps);
        let (plain, helped) = (1.0, 0.5);
        // The limit that counts as small enough is met only with the arm that helps.
        search.rules.below = self.rules.below.map(|_| f64::midpoint(plain, helped));
        let mut repeats = 0;
        while let Some(trial) = search.next() {
            let is_helped = good.is_some_and(|arm| trial.arms.contains(&arm));
            let value = if is_helped { helped } else { plain };
            let late = |name: &String| {
                let is_removed = is_helped && good.is_some_and(|arm| self.removes[arm].contains(name));
                (name.clone(), if is_removed { 0.0 } else { 1e6 })
            };
            let causes = self.removes.iter().flatten().map(late).collect();
            search.take(&Figure { value, causes, ..Figure::default() });
            repeats += 1;
        }
        repeats
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rules;
    use super::*;

    fn rules(first: usize, below: Option<f64>) -> Rules {
        Rules { margin: 0.05, alpha: 0.05, seed: 1, below, first, keeps_goal: true }
    }

    #[test]
    fn repeats_are_those_of_the_rules() {
        // Rounds of 2, 3, 4 blocks with 12, 6, 3 arms; 8 pairs for evidence of 40.
        let screened = 2 * 12 + 3 * 6 + 4 * 3;
        let proved = 2 * 8;
        assert_eq!(Search::new(rules(0, Some(1e5)), 12).repeats_left(true), screened + proved);
        // Two arms answer the causes: two blocks of them.
        assert_eq!(Search::new(rules(2, Some(1e5)), 12).repeats_left(true), 2 * 2 + proved);
        // Other arms that help are sought too: the next six, two of which are not confirmed.
        let more = Search::new(rules(0, None), 12).repeats_left(true);
        assert!(more > screened + proved + 2 * 6 + 3 * 3, "{more}");
        // If none helps, two confirmations fail, and neither has more than 24 pairs.
        let none = Search::new(rules(0, None), 12).repeats_left(false);
        assert!(none > screened && none <= screened + 2 * 2 * 24, "{none}");
        assert_eq!(Search::new(rules(0, None), 0).repeats_left(false), 0);
    }

    #[test]
    fn a_resumed_search_has_less_left() {
        let mut search = Search::new(rules(0, None), 5);
        let all = search.repeats_left(false);
        for _ in 0..7 {
            search.take(&Figure { value: 1.0, ..Figure::default() });
        }
        assert_eq!(search.repeats_left(false), all - 7);
    }
}
