//! What a recovery asks for, word by word. Nothing that destroys is done without it.

/// A question, and the words that answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// The election is paused, and with it everybody's work.
    Stop,
    /// A host that does not answer: somebody has looked.
    Off(String),
    /// One of these hosts has the data that is kept.
    Survivor(Vec<String>),
    /// This host may have been reconciled already: it is done once more.
    Again(String),
    /// This host was reconciled by hand.
    ByHand(String),
    /// No token up to a number, this one at least, is given again.
    Floor(u64),
    /// The tokens cannot be raised: the fences stay as they are until the store has passed them, or
    /// are reset.
    WaitOrReset,
    /// The fence in this place is reset.
    Fence(String),
    /// Who leads first, by its name as a candidate.
    Elect,
}

impl Question {
    /// What it is called in a file of answers.
    pub(super) fn key(&self) -> String {
        match self {
            Question::Stop => "stop".to_owned(),
            Question::Off(host) => format!("off:{host}"),
            Question::Survivor(_) => "survivor".to_owned(),
            Question::Again(host) => format!("again:{host}"),
            Question::ByHand(host) => format!("by_hand:{host}"),
            Question::Floor(_) => "floor".to_owned(),
            Question::WaitOrReset => "counter".to_owned(),
            Question::Fence(place) => format!("fence:{place}"),
            Question::Elect => "elect".to_owned(),
        }
    }

    /// What has to be typed, for people.
    pub(super) fn prompt(&self) -> String {
        match self {
            Question::Stop => "This stops the work of the election everywhere. Type `stop`".to_owned(),
            Question::Off(host) => format!("If you have checked that {host} is off, type its name"),
            Question::Survivor(hosts) => {
                format!("Whose data is kept? What the others have instead is lost. Type one of: {}", hosts.join(", "))
            }
            Question::Again(host) => {
                format!("{host} was reconciled before, or may have been. To do it again, type its name")
            }
            Question::ByHand(host) => {
                format!("No --reconcile-cmd was given. When {host} is reconciled, type its name")
            }
            Question::Floor(least) => format!(
                "Up to which token is none given again? At least {least}; more if another host has seen more. Type the number"
            ),
            Question::WaitOrReset => {
                "Type `wait` to go on with the fences as they are, which refuse every leader until then, or `reset`"
                    .to_owned()
            }
            Question::Fence(place) => {
                format!("Reset the fence: tokens of this store count from the first one. Type {place}")
            }
            Question::Elect => "Who is to lead first? Type its name as a candidate".to_owned(),
        }
    }

    /// Whether these words are an answer.
    pub(super) fn takes(&self, word: &str) -> bool {
        match self {
            Question::Stop => word == "stop",
            Question::Off(name) | Question::Again(name) | Question::ByHand(name) | Question::Fence(name) => {
                word == name
            }
            Question::Survivor(hosts) => hosts.iter().any(|host| host == word),
            Question::Floor(least) => word.parse::<u64>().is_ok_and(|floor| floor >= *least),
            Question::WaitOrReset => matches!(word, "wait" | "reset"),
            Question::Elect => !word.is_empty(),
        }
    }
}
