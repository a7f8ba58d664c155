"""The texts behind `tests/golden/logits`: prose, a chat, arithmetic, code, JSON and four languages, written for assize.

Only `reference_logits.py --encode` reads them; the goldens hold token ids.
"""

PROSE = """The ferry to the outer islands left twice a day, once before the fish market opened and once after the schools let out.
Nobody on the quay could remember a morning when the captain had been late, although several of them had been told by
their grandparents of a winter in which the harbour froze and the mail came over the ice on a sledge. On the second
Tuesday of March the boat did not come. By nine o'clock the baker had sold half of her bread to people who were only
waiting, and the harbour master had walked to the end of the pier three times with his binoculars. What they saw at
last, shortly before noon, was not the ferry at all but a grey tug with a broken mast, towing something low and dark."""

CHAT = [
    ("system", "You judge answers of a support desk. Say briefly whether the answer follows from the passages, then give a score from 1 to 5."),
    ("user", "Question: Can I return opened headphones?\nPassage: Unopened goods may be returned within 30 days. Opened audio products are "
             "exchanged only when they are faulty.\nAnswer: Yes, you have 30 days to send them back for a full refund."),
    ("assistant", "The answer contradicts the passage: opened audio products are only exchanged if faulty, and a refund within 30 days applies "
                  "to unopened goods. Score: 1"),
    ("user", "And if the left speaker had been dead on arrival?"),
    ("assistant", "Then an exchange would be possible, because a faulty"),
]

ARITHMETIC = """Problem 7. A tank holds 240 litres. Pump A fills it in 6 hours and pump B in 4 hours. How long do both pumps need together?
Solution. Pump A delivers 240 / 6 = 40 litres an hour, pump B delivers 240 / 4 = 60 litres an hour. Together they deliver
40 + 60 = 100 litres an hour, so the tank is full after 240 / 100 = 2.4 hours, that is 2 hours and 24 minutes.
Problem 8. Let f(x) = x^2 - 3x + 2. Its roots are x = 1 and x = 2, because f(1) = 1 - 3 + 2 = 0 and f(2) = 4 - 6 + 2 = 0. The derivative
is f'(x) = 2x - 3, which vanishes at x = 3/2, where f takes its smallest value"""

CODE = '''fn longest_run(values: &[i32]) -> Option<(i32, usize)> {
    let mut best: Option<(i32, usize)> = None;
    let mut start = 0;
    for index in 1..=values.len() {
        if index == values.len() || values[index] != values[start] {
            let length = index - start;
            if best.map_or(true, |(_, longest)| length > longest) {
                best = Some((values[start], length));
            }
            start = index;
        }
    }
    best
}

# The same in Python:
from itertools import groupby

def longest_run(values):
    """Return (value, length) of the longest run, or None."""
    runs = [(key, sum(1 for _ in group)) for key, group in groupby(values)]
    return max(runs, key=lambda run: run[1], default=None)
'''

JSON = """{"id": "case-0041", "created": "2026-03-17T09:12:44Z", "customer": {"name": "Zoë Müller", "tier": "gold", "tags": ["refund", "audio"]},
 "items": [{"sku": "HP-220-B", "quantity": 2, "price": 79.90}, {"sku": "CB-010", "quantity": 1, "price": 4.5}], "total": 164.30,
 "verdict": {"rationale": "The answer quotes the policy correctly.", "evidence": ["within 30 days"], "score": 4}}"""

LANGUAGES = """Der Zug nach Freiburg hatte zwanzig Minuten Verspätung, weil auf der Strecke ein Baum lag. Die Reisenden
standen am Bahnsteig, tranken Kaffee und sprachen über das Wetter, das seit Tagen nicht besser werden wollte.
昨天下午，图书馆的老师告诉我们，新的阅览室下个月就要开放了。同学们都很高兴，因为以后可以在那里一起学习和讨论问题。
في الصباح الباكر ذهب الصياد إلى البحر ومعه شبكة قديمة، وعندما عاد في المساء كان القارب مليئا بالسمك.
Завтра утром мы поедем в деревню к бабушке, и она, как всегда, испечёт пирог с яблоками. Dans le jardin, les enfants
cherchaient les œufs cachés sous les rosiers, pendant que leur père lisait le journal."""


def chat(opening, closing):
    """The chat, each turn as opening (with its role) and closing; the last one stays open."""
    turns = [opening.format(role=role) + text for role, text in CHAT]
    return (closing + "\n").join(turns)


def sequences(opening, closing):
    """Name and text of each of the two halves."""
    return [
        ("prose-chat-arithmetic", "\n\n".join([PROSE, chat(opening, closing), ARITHMETIC])),
        ("code-json-languages", "\n\n".join([CODE, JSON, LANGUAGES])),
    ]
