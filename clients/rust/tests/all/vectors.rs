//! The servers that other clients choose for keys. `cargo xtask vectors` makes `clients/vectors.txt` from
//! these clients' libraries, or by their rules where it cannot run them.

use larder_client::{Placement, Preset, Server};
use std::collections::HashSet;
use std::path::Path;

#[test]
fn keys_are_where_other_libraries_put_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors.txt");
    let text = std::fs::read_to_string(path).expect("clients/vectors.txt");
    let (mut keys, mut seen) = (Vec::new(), HashSet::new());
    let (mut preset, mut library, mut servers) = (None, "", Vec::new());
    let mut places = 0;
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').expect("two words");
        match word {
            "#" => {}
            "key" => keys.push(rest),
            "place" => {
                let (name, by) = rest.split_once(" by ").expect("who placed them");
                (preset, library) = (Preset::named(name), by);
                servers.clear();
            }
            "server" => {
                let (weight, name) = rest.split_once(' ').expect("weight and name");
                servers.push(Server { weight: weight.parse().expect("a weight"), ..Server::from(name) });
            }
            "at" => {
                let preset = preset.unwrap_or_else(|| panic!("{line}: no such preset"));
                let placement = Placement::new(preset, &servers).expect("they can be placed");
                seen.insert(preset);
                places += 1;
                let digit = |at: usize| char::from_digit(at as u32, 36).expect("few servers");
                let ours: String = keys.iter().map(|key| digit(placement.pick(key.as_bytes()))).collect();
                assert_eq!(ours, rest, "{} of {servers:?} by {library}", preset.name());
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!((keys.len(), seen.len()), (1000, 21), "{places} places");
    assert!(places > 80, "{places} places");
}
