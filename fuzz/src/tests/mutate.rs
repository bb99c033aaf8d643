//! Mutations of the inputs of a corpus.

use shardstream::Rng;

/// Numbers at which code that computes lengths and offsets often fails.
const NUMBERS: [u64; 12] =
    [0, 1, 2, 127, 255, 32_768, 65_535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, i64::MAX as u64, u64::MAX];
/// Numbers like those in [`NUMBERS`], and other JSON values, as text.
const TEXTS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "00",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "1e999",
    "0.1",
    "null",
    "\"\"",
];
const MAX_BYTES: usize = 16 << 10;

/// Draws inputs: 49 of 50 are a file of the corpus with one to five changes, the other inputs are random
/// bytes.
pub(super) struct Mutator<'a> {
    rng: Rng,
    seeds: &'a [Vec<u8>],
}

impl<'a> Mutator<'a> {
    pub(super) fn new(seed: u64, seeds: &'a [Vec<u8>]) -> Self {
        Mutator { rng: Rng::new(seed, 0, 0), seeds }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A random range within `length`, most often of a few bytes.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let longest = self.one_of(&[1, 2, 4, 8, 32, 512, length]);
        let start = self.below(length + 1);
        start..(start + self.below(longest + 1)).min(length)
    }

    pub(super) fn next(&mut self) -> Vec<u8> {
        if self.below(50) == 0 {
            return (0..self.below(100)).map(|_| self.byte()).collect();
        }
        let mut input = self.seed().clone();
        for _ in 0..=self.below(5) {
            self.change(&mut input);
        }
        input.truncate(MAX_BYTES);
        input
    }

    fn seed(&mut self) -> &'a Vec<u8> {
        let seeds = self.seeds;
        &seeds[self.below(seeds.len())]
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let range = self.range(input.len());
        let at = range.start;
        match self.below(11) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => drop(input.drain(range)),
            3 => {
                let copy = input[range].to_vec();
                let to = self.below(input.len() + 1);
                let times = self.one_of(&[1, 1, 2, 20]);
                input.splice(to..to, copy.repeat(times));
            }
            4 => {
                let new: Vec<u8> = range.map(|_| self.byte()).collect();
                input.splice(at..at, new);
            }
            5 if self.below(4) == 0 => input.truncate(at),
            // Replaces the end of the input by the end of another corpus file.
            6 => {
                let other = self.seed();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
            // Replaces the range by a range of another file of the corpus.
            7 => {
                let other = self.seed();
                let piece = self.range(other.len());
                input.splice(range, other[piece].to_vec());
            }
            8 => {
                let number = self.one_of(&NUMBERS);
                let number = if self.below(4) == 0 { number.wrapping_sub(1) } else { number };
                let bytes = if self.below(2) == 0 { number.to_le_bytes() } else { number.to_be_bytes() };
                let width = self.one_of(&[1, 2, 4, 8]);
                let bytes = if self.below(2) == 0 { &bytes[..width] } else { &bytes[8 - width..] };
                let end = (at + width).min(input.len());
                input.splice(at..end, bytes.to_vec());
            }
            9 | 10 => self.change_digits(input, at),
            _ => {}
        }
    }

    /// Replaces the first digits at or after `at` by one of [`TEXTS`].
    fn change_digits(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(start) = input[at..].iter().position(u8::is_ascii_digit) else { return };
        let start = at + start;
        let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = self.one_of(&TEXTS);
        input.splice(start..start + digits, text.bytes());
    }
}
