//! Figures for a person.

/// A figure with its thousands apart.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rows or operations a second
pub fn grouped(value: f64) -> String {
    let digits = (value.max(0.0).round() as u64).to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
