//! Places on the earth as Redis keeps them: 26 bits of longitude and 26 of latitude, interleaved, are the score of a member.
//!
//! ```text
//! x  the place of the longitude between -180 and 180, in 2^step parts    bits 1, 3, 5 … of a cell's number
//! y  the place of the latitude between -85.05112878 and 85.05112878      bits 0, 2, 4 …
//! ```
//!
//! A cell of fewer bits is the range of the scores that begin with them. A search looks through the cell of its centre and the
//! eight around it, which are so large that the shape lies within them, and computes the distance of each member there. Replies
//! have to be Redis's to the last digit, so the arithmetic is, too, operation by operation.

/// Bits of each coordinate in a score.
pub(super) const STEP_MAX: u32 = 26;
pub(super) const LONGITUDE_MAX: f64 = 180.0;
pub(super) const LATITUDE_MAX: f64 = 85.051_128_78;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half of the equator in metres, as the projection has it.
const MERCATOR_MAX_M: f64 = 20_037_726.37;
const RADIANS: f64 = std::f64::consts::PI / 180.0;
/// Letters of a geohash.
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Letters of a geohash; the bits end within the last one, which is 0.
const GEOHASH_LETTERS: usize = 11;

/// A place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub longitude: f64,
    pub latitude: f64,
}

/// Gathers every second bit of a word, from the lowest on, into one number.
fn gathered(bits: u64) -> u32 {
    let mut x = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        x = (x | x >> shift) & mask;
    }
    x as u32
}

/// Spreads the bits of a number to every second bit of a word.
fn spread(n: u32) -> u64 {
    let mut x = u64::from(n);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

/// A cell of the grid, by its column and its row among 2^step each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    x: u32,
    y: u32,
    step: u32,
}

/// The ranges of longitude and latitude of a cell.
#[derive(Clone, Copy, Debug)]
struct Area {
    longitude: (f64, f64),
    latitude: (f64, f64),
}

/// The part that a number falls into, of 2^step parts from `-max` to `max`.
fn part(n: f64, max: f64, step: u32) -> u32 {
    let offset = (n - -max) / (max - -max);
    (offset * (1_u64 << step) as f64) as u32
}

impl Cell {
    /// The cell of a place that is within the limits.
    pub fn of(place: Place, step: u32) -> Cell {
        let x = part(place.longitude, LONGITUDE_MAX, step);
        Cell { x, y: part(place.latitude, LATITUDE_MAX, step), step }
    }

    fn bits(self) -> u64 {
        spread(self.y) | spread(self.x) << 1
    }

    /// The scores of the places in it: from the first up to below the second.
    pub fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        let bits = self.bits();
        ((bits << shift) as f64, ((bits + 1) << shift) as f64)
    }

    /// The cell so many columns and rows away, around the edges of the grid.
    fn beside(self, columns: i32, rows: i32) -> Cell {
        let mask = (1_u32 << self.step) - 1;
        let moved = |n: u32, by: i32| if by == 0 { n } else { n.wrapping_add_signed(by) & mask };
        Cell { x: moved(self.x, columns), y: moved(self.y, rows), ..self }
    }

    fn area(self) -> Area {
        let parts = (1_u64 << self.step) as f64;
        let at = |n: f64, max: f64| -max + (n / parts) * (max - -max);
        let (x, y) = (f64::from(self.x), f64::from(self.y));
        Area {
            longitude: (at(x, LONGITUDE_MAX), at(x + 1.0, LONGITUDE_MAX)),
            latitude: (at(y, LATITUDE_MAX), at(y + 1.0, LATITUDE_MAX)),
        }
    }
}

/// A score as a whole number, as processors convert it where Redis is usually built, even if it is out of range.
fn bits_of(score: f64) -> u64 {
    const TOP: f64 = 9_223_372_036_854_775_808.0;
    let whole = |n: f64| if (-TOP..TOP).contains(&n) { n as i64 } else { i64::MIN };
    if score < TOP { whole(score) as u64 } else { whole(score - TOP) as u64 ^ 1 << 63 }
}

impl Place {
    /// Whether it is on the grid.
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    /// The score of a member at this place.
    pub fn score(self) -> f64 {
        Cell::of(self, STEP_MAX).bits() as f64
    }

    /// The middle of the cell with this score.
    pub fn of_score(score: f64) -> Place {
        let bits = bits_of(score);
        let area = Cell { x: gathered(bits >> 1), y: gathered(bits), step: STEP_MAX }.area();
        let middle = |(min, max): (f64, f64), most: f64| ((min + max) / 2.0).clamp(-most, most);
        Place {
            longitude: middle(area.longitude, LONGITUDE_MAX),
            latitude: middle(area.latitude, LATITUDE_MAX),
        }
    }

    /// The geohash, whose latitudes go to 90 degrees.
    pub fn geohash(self) -> [u8; GEOHASH_LETTERS] {
        let cell = Cell {
            x: part(self.longitude, LONGITUDE_MAX, STEP_MAX),
            y: part(self.latitude, 90.0, STEP_MAX),
            step: STEP_MAX,
        };
        let bits = cell.bits();
        let mut letters = [LETTERS[0]; GEOHASH_LETTERS];
        for (n, letter) in letters[..GEOHASH_LETTERS - 1].iter_mut().enumerate() {
            *letter = LETTERS[(bits >> (2 * STEP_MAX as usize - 5 * (n + 1))) as usize & 0x1f];
        }
        letters
    }

    /// The distance to another place, in metres.
    pub fn distance(self, other: Place) -> f64 {
        let v = ((other.longitude * RADIANS - self.longitude * RADIANS) / 2.0).sin();
        if v == 0.0 {
            return latitudes_apart(self.latitude, other.latitude);
        }
        let (one, two) = (self.latitude * RADIANS, other.latitude * RADIANS);
        let u = ((two - one) / 2.0).sin();
        let a = u * u + one.cos() * two.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }
}

/// The distance from one latitude to another, in metres.
fn latitudes_apart(one: f64, other: f64) -> f64 {
    EARTH_RADIUS_M * (other * RADIANS - one * RADIANS).abs()
}

/// The area that is searched, around its centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Extent {
    /// Places within this distance.
    Radius(f64),
    /// Places in a box of this width and height.
    Box(f64, f64),
}

/// The shape that is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub centre: Place,
    pub extent: Extent,
    /// Metres of the extent's unit.
    pub unit_m: f64,
}

impl Shape {
    /// The distance of a place from the centre in metres, if it lies in the shape.
    pub fn distance(&self, place: Place) -> Option<f64> {
        match self.extent {
            Extent::Radius(radius) => {
                let distance = self.centre.distance(place);
                if distance > radius * self.unit_m { None } else { Some(distance) }
            }
            Extent::Box(width, height) => {
                if latitudes_apart(place.latitude, self.centre.latitude) > height * self.unit_m / 2.0 {
                    return None;
                }
                let beside = Place { longitude: self.centre.longitude, latitude: place.latitude };
                if place.distance(beside) > width * self.unit_m / 2.0 {
                    return None;
                }
                Some(self.centre.distance(place))
            }
        }
    }

    /// The least and the greatest longitude and latitude of the shape.
    fn bounds(&self) -> (Place, Place) {
        let (width, height) = match self.extent {
            Extent::Radius(radius) => (radius, radius),
            Extent::Box(width, height) => (width / 2.0, height / 2.0),
        };
        let (width, height) = (self.unit_m * width, self.unit_m * height);
        let Place { longitude, latitude } = self.centre;
        let above = height / EARTH_RADIUS_M / RADIANS;
        // The parallel nearer to the pole is the shorter one.
        let parallel = if latitude < 0.0 { latitude - above } else { latitude + above };
        let beside = width / EARTH_RADIUS_M / (parallel * RADIANS).cos() / RADIANS;
        (
            Place { longitude: longitude - beside, latitude: latitude - above },
            Place { longitude: longitude + beside, latitude: latitude + above },
        )
    }

    /// The step of cells that are about as large as the shape.
    fn steps(&self) -> u32 {
        let radius = match self.extent {
            Extent::Radius(radius) => radius,
            Extent::Box(width, height) => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        let mut radius = radius * self.unit_m;
        if radius == 0.0 {
            return STEP_MAX;
        }
        let mut step = 1_i32;
        while radius < MERCATOR_MAX_M {
            radius *= 2.0;
            step += 1;
        }
        step -= 2;
        let latitude = self.centre.latitude.abs();
        step -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        step.clamp(1, STEP_MAX as i32) as u32
    }

    /// The cells to look through, in this order.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        /// North, south, east, west, and what lies between.
        const AROUND: [(i32, i32); 8] =
            [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let (least, most) = self.bounds();
        let mut steps = self.steps();
        let mut centre = Cell::of(self.centre, steps);
        let beside = |columns, rows| centre.beside(columns, rows).area();
        // If the centre is near an edge of its cell, a neighbouring cell may be too small.
        let is_narrow = beside(0, 1).latitude.1 < most.latitude
            || beside(0, -1).latitude.0 > least.latitude
            || beside(1, 0).longitude.1 < most.longitude
            || beside(-1, 0).longitude.0 > least.longitude;
        if steps > 1 && is_narrow {
            steps -= 1;
            centre = Cell::of(self.centre, steps);
        }
        let area = centre.area();
        let is_useless = move |(columns, rows): (i32, i32)| {
            steps >= 2
                && (rows < 0 && area.latitude.0 < least.latitude
                    || rows > 0 && area.latitude.1 > most.latitude
                    || columns < 0 && area.longitude.0 < least.longitude
                    || columns > 0 && area.longitude.1 > most.longitude)
        };
        let around = AROUND.into_iter().filter(move |way| !is_useless(*way));
        let mut last = None;
        let around = around.map(move |(columns, rows)| centre.beside(columns, rows)).filter(move |cell| {
            // If there are few cells, the neighbours on both sides are the same.
            let again = last == Some(*cell);
            last = Some(*cell);
            !again
        });
        std::iter::once(centre).chain(around)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Place = Place { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Place = Place { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn a_place_is_a_score_and_back() {
        assert_eq!(PALERMO.score(), 3_479_099_956_230_698.0);
        assert_eq!(CATANIA.score(), 3_479_447_370_796_909.0);
        let there = Place::of_score(PALERMO.score());
        assert!((there.longitude - PALERMO.longitude).abs() < 1e-5);
        assert!((there.latitude - PALERMO.latitude).abs() < 1e-5);
        assert_eq!(&Place::of_score(CATANIA.score()).geohash(), b"sqdtr74hyu0");
        assert_eq!(&there.geohash(), b"sqc8b49rny0");
        let apart = there.distance(Place::of_score(CATANIA.score()));
        assert!((apart - 166_274.151_6).abs() < 1e-4, "{apart}");
        assert_eq!(gathered(spread(0xdead_beef)), 0xdead_beef);
    }

    #[test]
    fn any_score_is_a_place() {
        for score in [f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300, -1e300, 0.5, 9.3e18, -9.3e18, 1.9e19] {
            let place = Place::of_score(score);
            assert!(place.is_valid(), "{score}: {place:?}");
            place.geohash();
        }
    }

    #[test]
    fn cells_cover_what_is_searched() {
        let mut seed = 7_u64;
        let mut next = |min: f64, max: f64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            min + (seed >> 11) as f64 / (1_u64 << 53) as f64 * (max - min)
        };
        for round in 0..3_000 {
            let centre = Place { longitude: next(-120.0, 120.0), latitude: next(-60.0, 60.0) };
            let radius = 10_f64.powf(next(0.0, 5.8));
            let extent =
                if round % 2 == 0 { Extent::Radius(radius) } else { Extent::Box(radius, radius / 3.0) };
            let shape = Shape { centre, extent, unit_m: 1.0 };
            let cells: Vec<Cell> = shape.cells().collect();
            assert!(cells.len() <= 9);
            for _ in 0..20 {
                let apart = radius / EARTH_RADIUS_M / RADIANS;
                let longitude = centre.longitude + next(-2.0, 2.0) * apart;
                let place = Place { longitude, latitude: centre.latitude + next(-1.0, 1.0) * apart };
                let place = Place::of_score(place.score());
                if shape.distance(place).is_none() {
                    continue;
                }
                let in_cell = |cell: &&Cell| {
                    let (from, to) = cell.scores();
                    (from..to).contains(&place.score())
                };
                assert_eq!(cells.iter().filter(in_cell).count(), 1, "{shape:?} {place:?}");
            }
        }
        for radius in [0.0, 1e-300, 1e300, f64::INFINITY] {
            for latitude in [-LATITUDE_MAX, 0.0, LATITUDE_MAX] {
                let centre = Place { longitude: LONGITUDE_MAX, latitude };
                for extent in [Extent::Radius(radius), Extent::Box(radius, radius)] {
                    let shape = Shape { centre, extent, unit_m: 1_609.34 };
                    assert!(shape.cells().all(|cell| cell.scores().0 < cell.scores().1));
                }
            }
        }
    }
}
