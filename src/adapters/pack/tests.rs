use super::*;
use crate::adapters::IteratorExt;
use crate::rng::Rng;
use proptest::prelude::*;

type Rows = Vec<PackedRow<(usize, usize)>>;

fn documents(lengths: &[usize]) -> impl Iterator<Item = Vec<(usize, usize)>> {
    let numbered = lengths.iter().enumerate();
    numbered.map(|(number, length)| (0..*length).map(|at| (number, at)).collect())
}

fn packed(lengths: &[usize], length: usize, look_ahead: usize, fit: Fit) -> Rows {
    let pack = Pack::new(length).look_ahead(look_ahead).fit(fit);
    documents(lengths).map(Ok).pipeline().pack(pack).results().map(Result::unwrap).collect()
}

proptest! {
    #[test]
    fn rows_have_every_token_once_and_whole_documents(
        lengths in prop::collection::vec(0usize..30, 0..60),
        length in 1usize..20,
        look_ahead in 1usize..20,
        fit in prop_oneof![Just(Fit::Best), Just(Fit::First)],
    ) {
        let rows = packed(&lengths, length, look_ahead, fit);
        let mut seen = Vec::new();
        for row in &rows {
            prop_assert!((1..=length).contains(&row.len()));
            prop_assert_eq!(row.lengths().iter().sum::<usize>(), row.len());
            let mut rest = row.tokens();
            for size in row.lengths() {
                let (piece, after) = rest.split_at(*size);
                // A document that fits into a row is whole. All pieces of a longer document except the last
                // are as long as a row.
                let (number, first) = piece[0];
                prop_assert_eq!(first % length, 0);
                prop_assert_eq!(*size, (lengths[number] - first).min(length));
                prop_assert!(piece.iter().enumerate().all(|(at, token)| *token == (number, first + at)));
                rest = after;
            }
            seen.extend_from_slice(row.tokens());
        }
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(documents(&lengths).flatten()));
    }

    #[test]
    fn contiguous_rows_are_full_and_resume_in_the_middle_of_a_document(
        lengths in prop::collection::vec(0usize..30, 0..40), length in 1usize..20,
    ) {
        let whole = packed(&lengths, length, 1, Fit::Contiguous);
        let all: Vec<_> = documents(&lengths).flatten().collect();
        prop_assert!(whole.iter().map(PackedRow::tokens).eq(all.chunks(length)));
        let pieces = |row: &PackedRow<_>| row.lengths().iter().sum::<usize>() == row.len();
        prop_assert!(whole.iter().all(pieces));
        // After each row, restore a new stage from the saved state and push the last `inputs` documents
        // again.
        let mut stage = Pack::new(length).fit(Fit::Contiguous);
        let mut given = 0;
        for (number, document) in documents(&lengths).enumerate() {
            let mut row = stage.push(document);
            while row.is_some() {
                given += 1;
                let saved = stage.save().unwrap();
                let mut resumed = Pack::new(length).fit(Fit::Contiguous);
                resumed.restore(&saved).unwrap();
                let first = number + 1 - saved.inputs as usize;
                let rest = documents(&lengths).skip(first).map(Ok).pipeline().pack(resumed);
                prop_assert_eq!(rest.collect::<Result<Rows>>().unwrap(), &whole[given..]);
                prop_assert!(saved.inputs <= 1, "{saved:?}");
                row = stage.pull();
            }
        }
    }
}

#[test]
fn a_huge_length_does_not_reserve_memory() {
    for fit in [Fit::Best, Fit::First, Fit::Contiguous] {
        let rows = packed(&[3, 0, 2], usize::MAX, 2, fit);
        assert_eq!(rows.iter().map(PackedRow::len).sum::<usize>(), 5, "{fit:?}");
    }
}

#[test]
fn best_fit_chooses_the_row_with_the_least_room() {
    let lengths = |rows: &[PackedRow<_>]| rows.iter().map(|row| row.lengths().to_vec()).collect::<Vec<_>>();
    let best = |sizes: &[usize], look_ahead| lengths(&packed(sizes, 10, look_ahead, Fit::Best));
    // A row has room for 10 tokens. The row of the document with 7 tokens has room for 3 more, and the row of
    // the document with 6 tokens has room for 4 more. So each short document fills one of these rows.
    assert_eq!(best(&[3, 6, 7, 4], 100), [vec![3, 7], vec![6, 4]]);
    assert_eq!(best(&[3, 6, 7, 4], 2), [vec![3, 6], vec![7], vec![4]]);
    assert_eq!(best(&[25, 0], 100), [vec![10], vec![10], vec![5]]);
    // Best fit places the document with 2 tokens in the row with the least room. First fit places it in the
    // first row with enough room.
    assert_eq!(best(&[6, 6, 7, 2], 100), [vec![6], vec![6], vec![7, 2]]);
    let first = lengths(&packed(&[6, 6, 5, 5, 2], 10, 100, Fit::First));
    assert_eq!(first, [vec![6, 2], vec![6], vec![5, 5]]);
    let best = lengths(&packed(&[6, 6, 5, 3, 2], 10, 100, Fit::Best));
    assert_eq!(best, [vec![6, 3], vec![6, 2], vec![5]]);
}

/// The lengths have a realistic distribution: log-normal with mean 6 and deviation 1.
#[test]
fn more_than_99_percent_of_rows_is_filled() {
    let mut rng = Rng::new(7, 0, 0);
    let mut normal = || (0..12).map(|_| rng.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0;
    let lengths: Vec<usize> = (0..10_000).map(|_| (6.0 + normal()).exp() as usize + 1).collect();
    for (fit, least) in [(Fit::Best, 0.99), (Fit::First, 0.99), (Fit::Contiguous, 0.999)] {
        let rows = packed(&lengths, 2048, 1000, fit);
        let filled = lengths.iter().sum::<usize>() as f64 / (2048 * rows.len()) as f64;
        assert!(filled > least, "{fit:?}: {filled}");
    }
}

#[test]
fn segments_and_positions_end_with_padding() {
    let row = PackedRow { tokens: vec![7, 7, 8], lengths: vec![2, 1] };
    assert_eq!((row.segments(5), row.positions(5)), (vec![1, 1, 2, 0, 0], vec![0, 1, 0, 0, 0]));
    assert_eq!(row.padded(5, 0), [7, 7, 8, 0, 0]);
}

#[test]
fn options_that_make_no_sense_are_errors() {
    for pack in [Pack::<u8>::new(0), Pack::new(5).look_ahead(0)] {
        assert!(matches!(pack.check().unwrap_err().kind(), ErrorKind::Config(_)));
    }
}
