//! The macro behind the table of policies: each line declares a policy's file, its name in code and
//! in text, and how to make it. An enum, its texts and a factory kept by hand in three places would
//! drift apart. rustfmt does not follow modules out of a macro; the format check names these files.

macro_rules! policies {
    ($($file:ident: $($name:ident $text:literal => $make:expr),+;)+) => {
        $(mod $file;)+

        /// Every policy that can be chosen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PolicyName {
            $($($name,)+)+
        }

        impl PolicyName {
            pub const ALL: &'static [Self] = &[$($(Self::$name,)+)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$name => $text,)+)+
                }
            }
        }

        /// Makes the policy of that name.
        pub fn make(name: PolicyName) -> Box<dyn Policy> {
            match name {
                $($(PolicyName::$name => Box::new($make),)+)+
            }
        }
    };
}
