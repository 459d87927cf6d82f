//! The decimal digits of a floating-point number, by Grisu2 as in Redis (Loitsch, "Printing Floating-Point Numbers Quickly and
//! Accurately with Integers", 2010), so that both servers print a number alike.
//!
//! The digits read back as the same number and are nearly always the fewest possible. One number in a thousand has a digit more
//! than needed, as in Redis.

/// Most digits of a number.
const DIGITS_MAX: usize = 20;
/// The first exponent of ten in [`POWERS`].
const POWER_MIN: i32 = -348;
/// The distance of two exponents there.
const POWER_STEP: i32 = 8;
/// Binary exponents of a scaled number: its integral part then has 4 to 32 bits.
const EXPONENTS: std::ops::RangeInclusive<i32> = -60..=-32;
const MANTISSA_BITS: u32 = 52;
const HIDDEN: u64 = 1 << MANTISSA_BITS;
const LOG10_OF_2: f64 = 0.301_029_995_663_981_14;

/// A number: `frac` times two to the power of `exp`.
#[derive(Clone, Copy, Debug)]
struct Binary {
    frac: u64,
    exp: i32,
}

impl Binary {
    /// The same number with the highest bit of `frac` set.
    fn normal(self) -> Binary {
        let zeros = self.frac.leading_zeros();
        Binary { frac: self.frac << zeros, exp: self.exp - zeros as i32 }
    }

    /// The product, rounded to 64 bits.
    fn times(self, other: Binary) -> Binary {
        let product = u128::from(self.frac) * u128::from(other.frac);
        Binary { frac: ((product + (1 << 63)) >> 64) as u64, exp: self.exp + other.exp + 64 }
    }
}

/// The digits of a number, and the power of ten that they are multiplied by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits {
    bytes: [u8; DIGITS_MAX],
    len: usize,
    pub power: i32,
}

impl Digits {
    /// The digits of `n`, which is finite and above 0.
    pub fn of(n: f64) -> Digits {
        let bits = n.to_bits();
        let exponent = (bits >> MANTISSA_BITS) as i32 & 0x7ff;
        let frac = (bits & (HIDDEN - 1)) + if exponent > 0 { HIDDEN } else { 0 };
        let number = Binary { frac, exp: exponent.max(1) - 1075 };
        // Half-way to the neighbouring numbers. Below a power of two the lower one is nearer.
        let above = Binary { frac: 2 * frac + 1, exp: number.exp - 1 }.normal();
        let near = if frac == HIDDEN { 2 } else { 1 };
        let below = Binary { frac: (frac << near) - 1, exp: number.exp - near };
        let below = Binary { frac: below.frac << (below.exp - above.exp), exp: above.exp };
        let (scale, power) = power_for(above.exp);
        let (number, above, below) = (number.normal().times(scale), above.times(scale), below.times(scale));
        let mut digits = Digits { bytes: [0; DIGITS_MAX], len: 0, power: -power };
        digits.fill(number.frac, below.frac + 1, Binary { frac: above.frac - 1, ..above });
        digits
    }

    /// The digits as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("digits")
    }

    fn push(&mut self, digit: u64) {
        if digit > 0 || self.len > 0 {
            self.bytes[self.len] = b'0' + digit as u8;
            self.len += 1;
        }
    }

    /// Generates digits until the rest lies between `below` and `above`.
    fn fill(&mut self, number: u64, below: u64, above: Binary) {
        let (shift, mut delta, distance) = (-above.exp, above.frac - below, above.frac - number);
        let one = 1_u64 << shift;
        let (mut whole, mut part) = (above.frac >> shift, above.frac & (one - 1));
        let mut unit = 1_000_000_000;
        for place in (0..10).rev() {
            self.push(whole / unit);
            whole %= unit;
            let rest = (whole << shift) + part;
            if rest <= delta {
                self.power += place;
                return self.round(delta, rest, unit << shift, distance);
            }
            unit /= 10;
        }
        let mut unit = 1_u64;
        loop {
            (part, delta, unit) = (part.wrapping_mul(10), delta.wrapping_mul(10), unit.wrapping_mul(10));
            self.power -= 1;
            self.push(part >> shift);
            part &= one - 1;
            if part < delta {
                return self.round(delta, part, one, distance.wrapping_mul(unit));
            }
        }
    }

    /// Lowers the last digit while that comes closer to the number.
    fn round(&mut self, delta: u64, mut rest: u64, unit: u64, distance: u64) {
        while rest < distance
            && delta - rest >= unit
            && (rest + unit < distance || distance - rest > rest + unit - distance)
        {
            self.bytes[self.len - 1] -= 1;
            rest += unit;
        }
    }
}

/// The power of ten that brings a number with this exponent into [`EXPONENTS`].
fn power_for(exp: i32) -> (Binary, i32) {
    let about = (f64::from(-(exp + POWERS.len() as i32)) * LOG10_OF_2) as i32;
    let mut at = ((about - POWER_MIN) / POWER_STEP) as usize;
    loop {
        let power = POWER_MIN + at as i32 * POWER_STEP;
        let scale = Binary { frac: POWERS[at], exp: exponent_of(power) };
        let comes_to = exp + scale.exp + 64;
        if EXPONENTS.contains(&comes_to) {
            return (scale, power);
        }
        if comes_to < *EXPONENTS.start() { at += 1 } else { at -= 1 }
    }
}

/// The binary exponent of a power of ten with 64 bits.
fn exponent_of(power: i32) -> i32 {
    (f64::from(power) / LOG10_OF_2).floor() as i32 - 63
}

/// The first 64 bits of ten to the power of -348, -340 and so on up to 340, rounded.
const POWERS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288,
    0xbaae_e17f_a23e_bf76,
    0x8b16_fb20_3055_ac76,
    0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d,
    0xe61a_cf03_3d1a_45df,
    0xab70_fe17_c79a_c6ca,
    0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c,
    0x8dd0_1fad_907f_fc3c,
    0xd351_5c28_3155_9a83,
    0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb,
    0xaecc_4991_4078_536d,
    0x823c_1279_5db6_ce57,
    0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f,
    0xd774_85cb_2582_3ac7,
    0xa086_cfcd_97bf_97f4,
    0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e,
    0x84c8_d4df_d2c6_3f3b,
    0xc5dd_4427_1ad3_cdba,
    0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584,
    0xa3ab_6658_0d5f_daf6,
    0xf3e2_f893_dec3_f126,
    0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b,
    0xc9bc_ff60_34c1_3053,
    0x964e_858c_91ba_2655,
    0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f,
    0xf8a9_5fcf_8874_7d94,
    0xb944_7093_8fa8_9bcf,
    0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6,
    0x993f_e2c6_d07b_7fac,
    0xe45c_10c4_2a2b_3b06,
    0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e,
    0xbce5_0864_9211_1aeb,
    0x8cbc_cc09_6f50_88cc,
    0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000,
    0xe8d4_a510_0000_0000,
    0xad78_ebc5_ac62_0000,
    0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3,
    0x8f7e_32ce_7bea_5c70,
    0xd5d2_38a4_abe9_8068,
    0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27,
    0xb0de_6538_8cc8_ada8,
    0x83c7_088e_1aab_65db,
    0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758,
    0xda01_ee64_1a70_8dea,
    0xa26d_a399_9aef_774a,
    0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877,
    0x865b_8692_5b9b_c5c2,
    0xc835_53c5_c896_5d3d,
    0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3,
    0xa59b_c234_db39_8c25,
    0xf6c6_9a72_a398_9f5c,
    0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2,
    0xcc20_ce9b_d35c_78a5,
    0x9816_5af3_7b21_53df,
    0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396,
    0xfb9b_7cd9_a4a7_443c,
    0xbb76_4c4c_a7a4_4410,
    0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c,
    0x9b10_a4e5_e991_3129,
    0xe710_9bfb_a19c_0c9d,
    0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85,
    0xbf21_e440_03ac_dd2d,
    0x8e67_9c2f_5e44_ff8f,
    0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9,
    0xeb96_bf6e_badf_77d9,
    0xaf87_023b_9bf0_ee6b,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(digits: &Digits) -> f64 {
        format!("{}e{}", digits.text(), digits.power).parse().expect("a number")
    }

    #[test]
    fn powers_are_those_of_ten() {
        for (at, frac) in POWERS.iter().enumerate() {
            let power = POWER_MIN + at as i32 * POWER_STEP;
            // As precisely as a double can tell: 53 bits, by their halves where they are out of range.
            let value = *frac as f64 * f64::powi(2.0, exponent_of(power) / 2);
            let value = value * f64::powi(2.0, exponent_of(power) - exponent_of(power) / 2);
            if (-290..=290).contains(&power) {
                let exact: f64 = format!("1e{power}").parse().expect("a number");
                assert!((value / exact - 1.0).abs() < 1e-15, "{power}: {value}");
            }
            assert!(frac >> 63 == 1);
            // Small powers are integers.
            if (0..=16).contains(&power) {
                assert_eq!(frac >> -exponent_of(power), 10_u64.pow(power as u32));
            }
        }
    }

    #[test]
    fn digits_read_back_and_are_nearly_always_the_fewest() {
        let (mut seed, mut longer, mut count) = (1_u64, 0, 0);
        for round in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = match round % 3 {
                0 => f64::from_bits(seed >> 1),
                1 => (seed >> 11) as f64 / (1_u64 << 53) as f64 * 180.0,
                _ => (seed >> 40) as f64 / 1000.0,
            };
            if !n.is_finite() || n == 0.0 {
                continue;
            }
            let digits = Digits::of(n);
            assert_eq!(read(&digits).to_bits(), n.to_bits(), "{n}: {digits:?}");
            let fewest =
                format!("{n:e}").bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count();
            longer += usize::from(digits.text().trim_end_matches('0').len() > fewest.max(1));
            count += 1;
        }
        assert!(longer > 0 && longer * 200 < count, "{longer} of {count}");
    }

    #[test]
    fn digits_are_those_of_redis() {
        for (n, digits, power) in [
            (80.805_000_647_332_2, "8080500064733219", -14),
            (139.121_640_622_615_8, "13912164062261581", -14),
            (0.1, "1", -1),
            (f64::MIN_POSITIVE, "22250738585072014", -324),
            (5e-324, "5", -324),
            (f64::MAX, "17976931348623157", 292),
            (1e23, "9999999999999999", 7),
        ] {
            let found = Digits::of(n);
            assert_eq!((found.text(), found.power), (digits, power), "{n}");
        }
    }
}
