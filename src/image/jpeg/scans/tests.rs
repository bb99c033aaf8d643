use super::*;
use crate::Rng;
use crate::image::jpeg::huffman::BAD_RESTART;
use crate::image::{Image, ImageMode};

const PROGRESSIVE: &[u8] = include_bytes!("../../../../tests/data/codec/images/progressive.jpg");
const RESTART: &[u8] = include_bytes!("../../../../tests/data/codec/images/restart.jpg");

fn noise(mode: ImageMode, quality: u8) -> Vec<u8> {
    let mut rng = Rng::new(9, 0, 0);
    let pixels: Vec<u8> = (0..70 * 50 * mode.channels()).map(|_| rng.below(256) as u8).collect();
    Image::new(mode, 70, 50, pixels).unwrap().to_jpeg(quality).unwrap()
}

fn check(checker: &mut Checker, file: &[u8]) -> Result<(), String> {
    let headers = Layout::read(file).ok_or("no headers")?;
    checker.check(file, &headers).map_err(|error| match error {
        ImageError::Decode(source) => source.to_string(),
        other => other.to_string(),
    })
}

fn fault(file: &[u8]) -> String {
    check(&mut Checker::default(), file).unwrap_err()
}

#[test]
fn tables_are_those_of_the_file() {
    let checker = &mut Checker::default();
    let files = [&noise(ImageMode::Rgb8, 95)[..], &noise(ImageMode::L8, 20), PROGRESSIVE, RESTART];
    for file in files.iter().chain(files.iter().rev()) {
        assert_eq!(check(checker, file), Ok(()));
    }
    // The encoder uses those of the standard, which are known where they are left out.
    let mut file = files[0].to_vec();
    while let Some(at) = file.windows(2).position(|marker| marker == b"\xff\xc4") {
        let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        file.drain(at..at + 2 + length);
    }
    assert!(file.len() + 400 < files[0].len());
    assert_eq!(check(checker, &file), Ok(()));
    let mut progressive = PROGRESSIVE.to_vec();
    let at = progressive.windows(2).position(|marker| marker == b"\xff\xc4").unwrap();
    // More codes of one bit than there are.
    progressive[at + 5] = 3;
    assert!(check(checker, &progressive).is_err());
}

#[test]
fn faults_have_their_names() {
    let file = noise(ImageMode::Rgb8, 90);
    let end = file.len() - 2;
    let with = |bytes: &[u8]| [bytes, b"\xff\xd9"].concat();
    assert!(fault(&with(&file[..end - 9])).ends_with(SHORT));
    assert!(fault(&with(&[&file[..end], b"more"].concat())).ends_with(TOO_MUCH));
    assert!(fault(&file[..end]).contains("truncated"));
    let restart = RESTART.windows(2).position(|marker| marker == b"\xff\xd0").unwrap();
    assert!(fault(&[&RESTART[..restart], &RESTART[restart + 2..]].concat()).ends_with(BAD_RESTART));
    // Without its last passes, and without all of them but the first.
    let scans: Vec<usize> =
        (0..PROGRESSIVE.len()).filter(|at| PROGRESSIVE[*at..].starts_with(b"\xff\xda")).collect();
    assert!(scans.len() > 5);
    for at in &scans[1..] {
        assert!(fault(&with(&PROGRESSIVE[..*at])).ends_with(INCOMPLETE), "{at}");
    }
    // Twice the same pass.
    let twice = [&PROGRESSIVE[..scans[1]], &PROGRESSIVE[scans[0]..]].concat();
    assert!(fault(&twice).ends_with(REPEATED));
}

#[test]
fn a_size_that_the_data_is_not_of_takes_no_time() {
    for file in [&noise(ImageMode::Rgb8, 90)[..], RESTART] {
        let mut file = file.to_vec();
        let frame = file.windows(2).position(|marker| marker == b"\xff\xc0").unwrap();
        file[frame + 5..frame + 9].fill(0xff);
        assert!(check(&mut Checker::default(), &file).is_err());
    }
}

#[test]
fn damage_does_not_panic() {
    let mut rng = Rng::new(10, 0, 0);
    let checker = &mut Checker::default();
    for file in [&noise(ImageMode::L8, 50)[..], PROGRESSIVE, RESTART] {
        for round in 0..4000 {
            let mut damaged = file.to_vec();
            for _ in 0..=round % 4 {
                let at = 2 + rng.below(damaged.len() as u64 - 2) as usize;
                damaged[at] = rng.below(256) as u8;
            }
            let _ = check(checker, &damaged);
            assert_eq!(check(checker, file), Ok(()), "the next file is read");
        }
    }
}
