//! Texts as people post them: cut, reordered, doubled, damaged, quoted and wrapped, by a seed.

/// What was done to a text.
#[derive(Clone, Debug, Default)]
pub struct Excerpt {
    pub text: Vec<u8>,
    /// The changes, in their order.
    pub changes: Vec<&'static str>,
    /// Lines occur more than once.
    pub is_doubled: bool,
    /// Letters were exchanged: figures may differ.
    pub is_damaged: bool,
    /// Lines are in another order.
    pub is_reordered: bool,
}

/// How many excerpts of each text a test takes: `WHYLATE_MUTATIONS`, else `usual`.
pub fn count(usual: u64) -> u64 {
    std::env::var("WHYLATE_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// splitmix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }
}

/// Where a mail's lines end.
const COLUMNS: usize = 72;

/// The text after one to three changes, which the seed draws.
pub fn excerpt(text: &[u8], seed: u64) -> Excerpt {
    let mut draw = Draw(seed);
    let mut excerpt = Excerpt { text: text.to_vec(), ..Excerpt::default() };
    for _ in 0..=draw.below(3) {
        excerpt.change(&mut draw);
    }
    excerpt
}

impl Excerpt {
    fn change(&mut self, draw: &mut Draw) {
        let mut lines: Vec<Vec<u8>> =
            self.text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if lines.is_empty() {
            return;
        }
        let from = draw.below(lines.len());
        let to = (from + 1 + draw.below(lines.len().min(40))).min(lines.len());
        let what = match draw.below(11) {
            0 => {
                lines.drain(..from);
                "cut before"
            }
            1 => {
                lines.truncate(to);
                "cut behind"
            }
            2 => {
                lines.truncate(to);
                let last = lines.last_mut().expect("there is one");
                last.truncate(draw.below(last.len()));
                last.push(b'\n');
                "cut in a line"
            }
            3 => {
                lines.drain(from..to);
                "left out"
            }
            4 => {
                lines[from..to].reverse();
                self.is_reordered = true;
                "reversed"
            }
            5 => {
                let block: Vec<Vec<u8>> = lines.drain(from..to).collect();
                let place = draw.below(lines.len() + 1);
                lines.splice(place..place, block);
                self.is_reordered = true;
                "moved"
            }
            6 => {
                let block = lines[from..to].to_vec();
                lines.splice(from..from, block);
                self.is_doubled = true;
                "doubled"
            }
            7 => {
                for _ in 0..=draw.below(4) {
                    let line = draw.below(lines.len());
                    let line = &mut lines[line];
                    let place = draw.below(line.len());
                    line[place] = b" 0159.,:-#x\n"[draw.below(12)];
                }
                self.is_damaged = true;
                "damaged"
            }
            8 => {
                lines = lines.iter().map(|line| [b"> ", line.as_slice()].concat()).collect();
                "quoted"
            }
            9 => {
                lines = lines.iter().map(|line| wrapped(line)).collect();
                "wrapped"
            }
            _ => {
                lines = lines.iter().map(|line| [b"    ", line.as_slice()].concat()).collect();
                "indented"
            }
        };
        self.text = lines.concat();
        self.changes.push(what);
    }
}

/// A line with its end in the place of the blanks at which a mail breaks it.
fn wrapped(line: &[u8]) -> Vec<u8> {
    let mut line = line.to_vec();
    let mut start = 0;
    while line.len() - start > COLUMNS {
        let Some(blank) =
            line[start..start + COLUMNS].iter().rposition(|byte| *byte == b' ').filter(|at| *at > 0)
        else {
            break;
        };
        line[start + blank] = b'\n';
        start += blank + 1;
    }
    line
}

/// Every whole number in a text: `12.345` gives 12, 345 and 12345.
pub fn numbers(text: &[u8]) -> std::collections::BTreeSet<u64> {
    let text = String::from_utf8_lossy(text);
    let digits = |word: &str| word.parse::<u64>().ok();
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let with_points = words.clone().filter_map(|word| digits(&word.replace('.', "")));
    words.clone().flat_map(|word| word.split('.')).filter_map(digits).chain(with_points).collect()
}
