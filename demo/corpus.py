"""Writes the corpus of the demo model: stories, questions about them, sums and small talk, from our own grammar.

A seed determines everything. A document is a conversation, a list of (role, text) turns. Each document has *keys* (its
hero with its object, or the numbers of its sums). Each key always belongs either to the training part or to the
held-back part, so no question of the held-back part occurs in the training part, in any wording.

    python corpus.py --documents 5            prints some training documents
    python corpus.py --documents 5 --held     prints some held-back ones
"""
import argparse
import random
import zlib
from dataclasses import dataclass, field

GIRLS = "Mia Lily Anna Rosa Nora Ella Ruby Zoe".split()
BOYS = "Tom Ben Max Sam Leo Finn Jack Hugo".split()
ANIMALS = "fox bear mouse rabbit duck frog cat dog hen goat".split()
COLOURS = "red blue green white black pink".split()
OBJECTS = "kite ball hat boat drum bell lamp book cup key ring flute".split()
PLACES = "barn garden forest kitchen mill cave meadow market tower school".split()
HOMES = ["near the river", "on a hill", "at the old farm", "by the sea", "in a small village", "under a big tree"]
TRAITS = "kind clever brave quiet".split()
FOODS = "apples pears plums nuts".split()
TIMES = ["One sunny morning", "One rainy day", "One cold evening", "One windy night"]
FEELINGS = "happy proud glad".split()
ENDINGS = ["They were good friends from that day on.", "They played until the sun went down.",
           "Then they went home for supper."]
SOUNDS = {"cow": "moo", "cat": "meow", "dog": "woof", "duck": "quack", "sheep": "baa", "frog": "croak"}
OPPOSITES = {"big": "small", "hot": "cold", "up": "down", "happy": "sad", "fast": "slow", "day": "night", "old": "new",
             "open": "closed", "wet": "dry", "loud": "quiet"}
THINGS = {"the sky": "blue", "snow": "white", "grass": "green", "coal": "black"}
GREATEST = 10


@dataclass
class Document:
    turns: list
    keys: list
    # Indices of the assistant turns that answer a question with exactly one right answer, and the kind of the question.
    answers: list = field(default_factory=list)

    def ask(self, kind, question, answer):
        self.turns.append(("user", question))
        self.answers.append((len(self.turns), kind))
        self.turns.append(("assistant", answer))


def is_held(key):
    """Whether a key belongs to the held-back part: about one in ten, the same on every machine."""
    return zlib.crc32(key.encode()) % 10 == 0


@dataclass
class Being:
    name: str
    animal: str

    @property
    def his(self):
        return "her" if self.name in GIRLS else "his"


def beings(rng, count):
    names = rng.sample(GIRLS + BOYS, count)
    return [Being(name, animal) for name, animal in zip(names, rng.sample(ANIMALS, count))]


class Story:
    """One story: characters, objects and places are chosen first, so that every sentence agrees with them.

    Sentences are short, a story has one place and one object, and most answers repeat one of its sentences word for
    word: the model is too small for more.
    """

    def __init__(self, rng):
        self.hero, self.friend = beings(rng, 2)
        self.thing, self.colour, self.place = rng.choice(OBJECTS), rng.choice(COLOURS), rng.choice(PLACES)
        self.trait, self.facts, self.text = rng.choice(TRAITS), [], []
        hero, home, feeling = self.hero.name, rng.choice(HOMES), rng.choice(FEELINGS)
        self.text.append(f"Once there was a {self.trait} {self.hero.animal} named {hero}.")
        self.facts.append((f"What kind of animal was {hero}?", f"{hero} was a {self.hero.animal}."))
        self.tell(f"Where did {hero} live?", f"{hero} lived {home}.")
        rng.choice([self.lost, self.gift, self.lend, self.share, self.race])(rng, rng.choice(TIMES))
        self.tell(f"How was {hero} in the end?", f"In the end {hero} was {feeling}.")
        self.text.append(rng.choice(ENDINGS))

    @property
    def key(self):
        return f"{self.hero.name} {self.thing}"

    def tell(self, question, answer, before=""):
        """Adds a sentence that answers a question; `before` precedes it only in the story."""
        self.text.append(before + answer)
        self.facts.append((question, answer))

    def meet(self):
        hero, friend = self.hero.name, self.friend
        self.tell(f"Who did {hero} meet?", f"{hero} met {friend.name} the {friend.animal}.")

    def colours(self, thing, colour):
        self.facts.append((f"What colour was the {thing}?", f"The {thing} was {colour}."))

    def lost(self, rng, time):
        hero, friend, thing = self.hero.name, self.friend.name, self.thing
        self.tell(f"What did {hero} lose?", f"{hero} lost {self.hero.his} {self.colour} {thing}.", f"{time}, ")
        self.meet()
        self.text.append(f'"Your {thing} is in the {self.place}," said {friend}.')
        self.tell(f"Where did they find the {thing}?", f"They found the {thing} in the {self.place}.")
        self.colours(thing, self.colour)

    def gift(self, rng, time):
        hero, friend, thing = self.hero.name, self.friend.name, self.thing
        self.tell(f"What did {hero} find?", f"{hero} found a {self.colour} {thing}.", f"{time}, ")
        self.tell(f"Where was the {thing}?", f"The {thing} was in the {self.place}.")
        self.meet()
        self.tell("Who was sad?", f"{friend} was sad.")
        self.text.append(f'"This {thing} is for you," said {hero}.')
        self.tell(f"Who took the {thing}?", f"{friend} took the {thing}.")
        self.colours(thing, self.colour)

    def lend(self, rng, time):
        hero, friend, thing = self.hero.name, self.friend.name, self.thing
        self.tell(f"Where did {hero} go?", f"{hero} went to the {self.place}.", f"{time}, ")
        self.tell(f"What did {hero} have?", f"{hero} had a {self.colour} {thing}.")
        self.meet()
        self.text.append(f'"Please take my {thing}," said {hero}.')
        self.tell(f"Who took the {thing}?", f"{friend} took the {thing}.")
        self.colours(thing, self.colour)

    def share(self, rng, time):
        hero, friend, food = self.hero.name, self.friend.name, rng.choice(FOODS)
        self.tell(f"What did {hero} have?", f"{hero} had some {food} and a {self.thing}.", f"{time}, ")
        self.tell(f"Where did {hero} go?", f"{hero} went to the {self.place}.")
        self.meet()
        self.tell("Who was hungry?", f"{friend} was hungry.")
        self.text.append(f'"Please take my {food}," said {hero}.')
        self.tell("What did they eat?", f"They ate all the {food}.")

    def race(self, rng, time):
        hero, friend = self.hero.name, self.friend.name
        winner, other = (hero, friend) if rng.random() < 0.5 else (friend, hero)
        self.tell(f"Where did {hero} go?", f"{hero} went to the {self.place}.", f"{time}, ")
        self.meet()
        self.text.append(f'"Let us race," said {friend}.')
        self.tell("Who fell?", f"{other} fell over a {self.thing}.")
        self.tell("Who won the race?", f"{winner} won the race.")

    def request(self, rng):
        hero = self.hero
        return rng.choice([
            f"Tell me a story about {hero.name} the {hero.animal} and a {self.thing}.",
            f"Tell me a story about a {hero.animal} named {hero.name}.",
            f"Tell me a story about {hero.name} and {self.friend.name}.",
            "Tell me a story.",
        ])


def story(rng):
    """A request for a story, the story, and questions about it."""
    told = Story(rng)
    document = Document([("user", told.request(rng)), ("assistant", " ".join(told.text))], [told.key])
    for question, answer in rng.sample(told.facts, 4):
        document.ask("story", question, answer)
    return document


def facts(rng):
    """Two sentences by the user, and questions about them."""
    (being,) = beings(rng, 1)
    name, thing, colour, place = being.name, rng.choice(OBJECTS), rng.choice(COLOURS), rng.choice(PLACES)
    pairs = [
        (f"Where is {name}?", f"{name} is in the {place}."),
        (f"What does {name} have?", f"{name} has a {colour} {thing}."),
        (f"Who has the {thing}?", f"{name} has the {thing}."),
        (f"Who is in the {place}?", f"{name} is in the {place}."),
        (f"What colour is the {thing}?", f"The {thing} is {colour}."),
    ]
    first, *more = rng.sample(pairs, 3)
    document = Document([], [f"{name} {thing}"])
    document.ask("facts", f"{name} is in the {place}. {name} has a {colour} {thing}. {first[0]}", first[1])
    for question, answer in more:
        document.ask("facts", question, answer)
    return document


def sums(rng):
    """Sums, differences and successors of numbers up to ten."""
    document = Document([], [])
    for _ in range(3):
        a, b = rng.randint(0, GREATEST), rng.randint(0, GREATEST)
        kind = rng.randrange(4)
        if kind == 0:
            document.keys.append(f"{min(a, b)} + {max(a, b)}")
            document.ask("sum", f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")
        elif kind == 1:
            a, b = max(a, b), min(a, b)
            document.keys.append(f"{a} - {b}")
            document.ask("sum", f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}.")
        elif kind == 2:
            who, food = rng.choice(GIRLS + BOYS), rng.choice(FOODS)
            document.keys.append(f"{min(a, b)} + {max(a, b)}")
            document.ask("sum", f"{who} has {a} {food} and gets {b} more. How many {food} does {who} have now?",
                         f"{a} plus {b} is {a + b}, so {who} has {a + b} {food}.")
        else:
            document.turns += [("user", f"What comes after {a}?"), ("assistant", f"After {a} comes {a + 1}.")]
    return document


def talk(rng):
    """Small talk and some common knowledge; nothing here is held back, since there is so little of it."""
    document = Document([], [])
    animal, sound = rng.choice(list(SOUNDS.items()))
    word, opposite = rng.choice([pair for a, b in OPPOSITES.items() for pair in ((a, b), (b, a))])
    thing, colour = rng.choice(list(THINGS.items()))
    name = rng.choice(GIRLS + BOYS)
    pairs = [
        (f"What does a {animal} say?", f"A {animal} says {sound}."),
        (f"What is the opposite of {word}?", f"The opposite of {word} is {opposite}."),
        (f"What colour is {thing}?", f"{thing.capitalize()} is {colour}."),
        ("What can you do?", "I can tell stories, answer questions about them and add small numbers."),
        ("Who are you?", "I am a very small language model. I like stories."),
        ("How are you?", "I am fine, thank you. Would you like a story?"),
    ]
    greeting = rng.choice(["Hello!", "Hi!", "Good morning!"])
    opening = [
        (greeting, f"{greeting} How can I help you?"),
        (f"{greeting} My name is {name}.", f"{greeting[:-1]}, {name}! How can I help you?"),
    ]
    closing = [("Thank you!", "You are welcome."), ("Goodbye!", "Goodbye! Come back soon.")]
    chosen = [rng.choice(opening), *rng.sample(pairs, 2), rng.choice(closing)]
    for question, answer in chosen:
        document.turns += [("user", question), ("assistant", answer)]
    return document


# The percentage of each kind of document.
SHARES = ((story, 40), (facts, 20), (sums, 30), (talk, 10))


def documents(seed, held):
    """An endless sequence of documents of the training part or of the held-back part."""
    rng = random.Random(f"{seed} {'held' if held else 'train'}")
    makers = [maker for maker, share in SHARES for _ in range(share) if not (held and maker is talk)]
    while True:
        maker = rng.choice(makers)
        document = maker(rng)
        while not (document.keys and all(map(is_held, document.keys)) if held else not any(map(is_held, document.keys))):
            document = maker(rng)
        yield document


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held", action="store_true", help="use the held-back part")
    chosen = parser.parse_args()
    for _, document in zip(range(chosen.documents), documents(chosen.seed, chosen.held)):
        for role, text in document.turns:
            print(f"{role}: {text}")
        print()


if __name__ == "__main__":
    main()
