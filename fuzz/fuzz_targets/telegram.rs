//! Any bytes as a telegram of RASHPA: it is refused in a short sentence, or written again it is the same telegram. What
//! is one goes to a module, which answers each.
#![no_main]

use konkordia_fabric::rashpa::control::ModuleControl;
use konkordia_fabric::rashpa::telegram::{ModuleCapabilities, Name, Telegram};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let capabilities = ModuleCapabilities {
        width: 8,
        height: 4,
        pixel_bytes: 2,
        channels_max: 4,
        entries_max: 8,
        ..ModuleCapabilities::default()
    };
    let mut module = ModuleControl::new(Name::new("module").expect("a name"), capabilities);
    // Several telegrams, divided by a byte that none has.
    for bytes in data.split(|byte| *byte == 0) {
        match Telegram::from_xml(bytes) {
            Err(why) => assert!(why.to_string().chars().count() < 600),
            Ok(telegram) => {
                let xml = telegram.to_xml().expect("what was read can be written");
                assert_eq!(Telegram::from_xml(xml.as_bytes()).as_ref(), Ok(&telegram));
                let answer = module.handle(&telegram);
                assert!(answer.to_xml().is_ok());
            }
        }
    }
});
