//! Reading any bytes as a pickle returns plain values or an error; no accessor of the values panics.

use make_shards::cifar::pickle::Pickle;

pub fn run(data: &[u8]) {
    if let Ok(pickle) = Pickle::read(data) {
        let root = pickle.root();
        for key in ["data", "labels", ""] {
            if let Some(value) = root.get(key) {
                if let Some((shape, bytes)) = value.array() {
                    assert_eq!(shape.iter().product::<usize>(), bytes.len());
                }
                let _ = value.integers();
            }
        }
    }
}
