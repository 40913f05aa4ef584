use super::*;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::analysis as kinds;

/// 6 results of the pixels, spots, resolution, a list of 4 of which 2 are used, a list of 3.
fn all() -> (Vec<ResultKind>, Vec<u64>) {
    let signed = |name| ResultKind { name, number: ColumnType::I64, ..kinds::SPOTS };
    let mut list = ["valid_pixels", "missing_pixels", "others"].map(|name| ResultKind { name, ..kinds::SPOTS }).to_vec();
    list.extend(["min_value", "max_value", "sum_value"].map(signed));
    list.extend([kinds::SPOTS, kinds::RESOLUTION, kinds::STORED_SPOTS]);
    list.push(ResultKind { length: 4, ..kinds::SPOT_X });
    list.push(ResultKind { length: 3, ..kinds::REGION_SUM });
    let float = |value: f64| value.to_bits();
    let mut bits = vec![100, 3, 0, (-5i64).cast_unsigned(), 900, 4000, 20, float(f64::NAN), 2];
    bits.extend([1.5, 7.0, 0.0, 0.0, 10.0, f64::NAN, 30.0].map(float));
    (list, bits)
}

fn holds(text: &str) -> Result<bool, String> {
    let (kinds, bits) = all();
    Rule::new(text, &kinds).map(|rule| rule.holds(&bits))
}

#[test]
fn rules_hold_as_they_read() {
    for text in [
        "spots >= 15",
        "spots - 3 * 2 == 14 && min_value == -5",
        "spots > 15.5 || nPeaks > 1000",
        "spots == 20u && spots % 6 == 2 && spots / 8 == 2.5",
        "!(max_value < 900) && max_value <= 900.0",
        "peakXPosRaw[1] == 7 && peakXPosRaw[nPeaks - 1] == 7",
        "size(peakXPosRaw) == 2 && max(peakXPosRaw) == 7 && min(peakXPosRaw) == 1.5 && sum(peakXPosRaw) == 8.5",
        "peakXPosRaw.size() == 2",
        "size(region_sum) == 3 && max(region_sum) == 30 && region_sum[2] - region_sum[0] > 19.9",
        "(spots > 100 ? 1 : 2) == 2 && (spots > 100 ? false : true)",
        "abs(min_value) == 5 && -min_value == 5",
        "(spots > 1) == (nPeaks > 1) && (spots > 1) != (nPeaks > 5)",
        "true && !false",
        // NaN: no comparison holds but !=.
        "!(resolution_angstrom < 3) && !(resolution_angstrom >= 3) && resolution_angstrom != resolution_angstrom",
        // There are two entries, and no half ones.
        "!(peakXPosRaw[2] == 0) && !(peakXPosRaw[-1] == 0) && !(peakXPosRaw[0.5] > 0) && !(region_sum[1] > 0)",
        "1 / 0 > 1e300 && !(0 / 0 == 0)",
    ] {
        assert_eq!(holds(text), Ok(true), "{text}");
        assert_eq!(holds(&format!("!({text})")), Ok(false), "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_before_the_run() {
    for (text, words) in [
        ("spotz > 5", "there is no result 'spotz'; there are: valid_pixels"),
        ("spots", "it is a number, and not true or false"),
        ("peakXPosRaw", "it is a list of numbers"),
        ("spots + 1", "it is a number"),
        ("spots > \"5\"", "texts and null are not possible"),
        ("spots && true", "&& needs true or false, and not a number"),
        ("!spots", "! needs true or false"),
        ("spots > (spots > 2)", "> cannot compare a number with true or false"),
        ("peakXPosRaw > 2", "> cannot compare a list of numbers with a number"),
        ("spots[0] > 2", "[ ] needs a list, and not a number"),
        ("peakXPosRaw[spots > 2] > 2", "[ ] needs a number"),
        ("max(spots) > 2", "max needs a list, and not a number"),
        ("max(peakXPosRaw, 2) > 2", "max takes one value, and not 2"),
        ("spots > 2 ? 1 : true", "?: has a number on one side"),
        ("sqrt(spots) > 2", "'sqrt' is not possible; there are +"),
        ("peakXPosRaw.exists(x, x > 3)", "all, exists, filter and map are not possible"),
        ("spots in [1, 2]", "'in' is not possible"),
        ("spots.total > 1", "'.total': results have no fields"),
        ("[1, 2] == [1, 2]", "cannot be written"),
        ("spots > ", "column"),
        ("", "column"),
        ("spots = 5", "column"),
        ("spots > 5 && (", "column"),
    ] {
        let wrong = holds(text).unwrap_err();
        assert!(wrong.contains(words), "{text}: {wrong}");
    }
}

#[test]
fn hostile_text_is_refused_and_harms_nothing() {
    let deep = |open: &str, close: &str| format!("{}spots > 1{}", open.repeat(900), close.repeat(900));
    for text in [
        deep("(", ")"),
        format!("spots > 0{}", " && (spots > 0".repeat(130)),
        format!("{} true", "true ? true : ".repeat(130)),
        "spots[".repeat(300),
        "\u{0}\u{1}\u{ffff}".into(),
        "x".repeat(RULE_CHARACTERS_MAX + 1),
        "99999999999999999999999999 > spots".into(),
    ] {
        assert!(holds(&text).is_err(), "{}", &text[..text.len().min(80)]);
    }
    // Signs are counted by the parser.
    assert_eq!(holds(&deep("!", "")), Ok(true));
    let _ = holds(&format!("{}1 > 0", "-".repeat(1900)));
    // As long as it may be, and not deep.
    let long = format!("true{}", " && spots > 1".repeat(150));
    assert_eq!(holds(&long), Ok(true));
}

#[test]
fn numbers_beyond_2_to_the_53_are_rounded() {
    let rule = Rule::new("spots > 9007199254740992", &[kinds::SPOTS]).unwrap();
    assert!(!rule.holds(&[(1 << 53) + 1]) && rule.holds(&[(1 << 53) + 2]));
}
