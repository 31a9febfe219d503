//! How many repeats a search takes, estimated before it begins: the search itself, on a machine without noise.

use super::{Figure, Search};

/// The most arms of a search that usually help.
const SEVERAL: usize = 3;

impl Search {
    /// Repeats to the end if the values do not vary and each of the first `helping` arms halves them; the others change
    /// nothing.
    pub fn repeats_left(&self, helping: usize) -> u32 {
        let mut search = self.clone();
        let good: Vec<usize> = self.ranked.iter().chain(&self.base).copied().take(helping).collect();
        let value_with = |helps: usize| 0.5_f64.powi(helps as i32);
        // The limit that counts as small enough is met only with all arms that help.
        let below = if good.is_empty() { 0.5 } else { 1.5 * value_with(good.len()) };
        search.rules.below = self.rules.below.map(|_| below);
        let mut repeats = 0;
        while let Some(trial) = search.next() {
            let is_in_force = |arm: &&usize| trial.arms.contains(arm);
            let helps: Vec<usize> = good.iter().filter(is_in_force).copied().collect();
            let late = |name: &String| {
                let is_removed = helps.iter().any(|arm| self.removes[*arm].contains(name));
                (name.clone(), if is_removed { 0.0 } else { 1e6 })
            };
            let causes = self.removes.iter().flatten().map(late).collect();
            search.take(&Figure { value: value_with(helps.len()), causes, ..Figure::default() });
            repeats += 1;
        }
        repeats
    }

    /// The fewest and the most repeats that are left, where none, one or several of the arms help.
    pub fn repeats_left_between(&self) -> (u32, u32) {
        let all = (0..=SEVERAL).map(|helping| self.repeats_left(helping));
        all.fold((u32::MAX, 0), |(least, most), one| (least.min(one), most.max(one)))
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
        assert_eq!(Search::new(rules(0, Some(1e5)), 12).repeats_left(1), screened + proved);
        // Two arms answer the causes: two blocks of them.
        assert_eq!(Search::new(rules(2, Some(1e5)), 12).repeats_left(1), 2 * 2 + proved);
        // Other arms that help are sought too: the next six, two of which are not confirmed.
        let more = Search::new(rules(0, None), 12).repeats_left(1);
        assert!(more > screened + proved + 2 * 6 + 3 * 3, "{more}");
        // If none helps, two confirmations fail, and neither has more than 24 pairs.
        let none = Search::new(rules(0, None), 12).repeats_left(0);
        assert!(none > screened && none <= screened + 2 * 2 * 24, "{none}");
        assert_eq!(Search::new(rules(0, None), 0).repeats_left(0), 0);
    }

    #[test]
    fn a_search_takes_longer_if_several_arms_help() {
        let search = Search::new(rules(0, None), 12);
        let (least, most) = search.repeats_left_between();
        assert_eq!(least, search.repeats_left(1).min(search.repeats_left(0)));
        assert_eq!(most, search.repeats_left(3), "each of them is proved, and then left out once");
        assert!(most > search.repeats_left(1), "{most}");
    }

    #[test]
    fn a_resumed_search_has_less_left() {
        let mut search = Search::new(rules(0, None), 5);
        let all = search.repeats_left(0);
        for _ in 0..7 {
            search.take(&Figure { value: 1.0, ..Figure::default() });
        }
        assert_eq!(search.repeats_left(0), all - 7);
    }
}
