#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "axonn/foundation/base/random.h"

/// The words and sentences of the synthetic text, and their choice. Changing any of them changes
/// the generated texts, so recorded losses must be measured again.
namespace axonn::synthetic {

using Words = std::span<const std::string_view>;

/// Random choices in a row that describe one thing, such as a document.
class Choices {
 public:
  /// room: the choices reserved for each thing, so that more can be added later.
  Choices(const Random& random, std::int64_t thing, std::int64_t room)
      : random_(random), next_(static_cast<std::uint64_t>(thing * room)) {}

  std::uint64_t below(std::uint64_t bound) { return random_.below(next_++, bound); }
  std::string_view any(Words words) { return words[below(words.size())]; }

 private:
  const Random& random_;
  std::uint64_t next_;
};

inline constexpr std::string_view kWomen[] = {
    "Ada",   "Agnes",  "Alice",  "Beatrice", "Clara", "Cora",  "Dora",   "Edith",
    "Eliza", "Emma",   "Esther", "Flora",    "Grace", "Hanna", "Helen",  "Ida",
    "Irene", "Josie",  "Judith", "Laura",    "Lydia", "Mabel", "Martha", "Nora",
    "Olive", "Phoebe", "Rosa",   "Ruth",     "Sarah", "Tilda", "Vera",   "Winnie"};
inline constexpr std::string_view kMen[] = {
    "Albert", "Arthur", "Bernard", "Caleb",   "Charles", "Daniel", "Edmund", "Elias",
    "Felix",  "Frank",  "George",  "Gilbert", "Henry",   "Hugo",   "Isaac",  "Jacob",
    "James",  "Jonas",  "Leonard", "Louis",   "Martin",  "Oliver", "Oscar",  "Paul",
    "Peter",  "Ralph",  "Robert",  "Samuel",  "Simon",   "Thomas", "Victor", "Walter"};
inline constexpr std::string_view kFamilies[] = {
    "Abbot",  "Barlow",  "Bell",    "Brandt",  "Carver", "Cole",   "Dale",   "Draper",
    "Ellis",  "Fairley", "Fisher",  "Garland", "Hale",   "Hobson", "Ingram", "Jarvis",
    "Keller", "Lambert", "Marlow",  "Mercer",  "Norris", "Osborn", "Palmer", "Quill",
    "Reeves", "Sawyer",  "Shepard", "Tanner",  "Turner", "Vance",  "Webb",   "Yates"};

inline constexpr std::string_view kTownBegins[] = {
    "Alder", "Ash", "Birch", "Black", "Bright", "Clear", "Cold", "Deer", "East",  "Fern",
    "Green", "Haw", "King",  "Lang",  "Mill",   "North", "Oak",  "Rose", "Stone", "Winter"};
inline constexpr std::string_view kTownEnds[] = {"bridge", "brook", "bury",  "combe",
                                                 "dale",   "field", "ford",  "gate",
                                                 "ham",    "mouth", "stead", "wick"};
inline constexpr std::string_view kRivers[] = {"Arrow", "Bourne", "Calder", "Dove",
                                               "Elm",   "Fleet",  "Gray",   "Heron",
                                               "Isk",   "Loam",   "Mersk",  "Wend"};
inline constexpr std::string_view kKnownFor[] = {
    "its apple orchards", "its old stone bridge", "its clock tower",  "its wool market",
    "its glass makers",   "its salt mines",       "its wide harbor",  "its blue pottery",
    "its honey",          "its summer fair",      "its paper mill",   "its slate roofs",
    "its rope works",     "its library",          "its church bells", "its rye bread"};
inline constexpr std::string_view kCounties[] = {"Arden",   "Brennan", "Corrow",
                                                 "Dunmere", "Esker",   "Lorne"};
inline constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                               "May",       "June",     "July",     "August",
                                               "September", "October",  "November", "December"};
inline constexpr std::string_view kWeekdays[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                 "Friday", "Saturday", "Sunday"};
inline constexpr std::string_view kSeasons[] = {"spring", "summer", "autumn", "winter"};
inline constexpr std::string_view kWeather[] = {
    "the rain did not stop", "the sun was warm",        "a cold wind came from the north",
    "snow lay on the roofs", "the fog was thick",       "the sky was clear and blue",
    "the river was high",    "the leaves were falling", "a storm broke over the hills",
    "the air smelled of hay"};
inline constexpr std::string_view kProfessions[] = {
    "baker",    "doctor",  "teacher",  "carpenter", "printer",    "weaver",
    "sailor",   "painter", "farmer",   "miller",    "blacksmith", "clockmaker",
    "gardener", "tailor",  "lawyer",   "nurse",     "shoemaker",  "bookseller",
    "surveyor", "potter",  "engineer", "cook",      "judge",      "fisher"};
inline constexpr std::string_view kHobbies[] = {
    "played the violin", "collected old maps", "grew roses",          "walked in the hills",
    "wrote short poems", "kept bees",          "painted small boats", "sang in the choir",
    "studied the stars", "played chess",       "carved wooden birds", "read long novels"};
inline constexpr std::string_view kAnimals[] = {"dog",    "cat",  "horse", "goat",
                                                "parrot", "pony", "hen",   "rabbit"};
inline constexpr std::string_view kAnimalNames[] = {"Biscuit", "Button", "Clover",  "Dusty",
                                                    "Ginger",  "Misty",  "Pepper",  "Rusty",
                                                    "Shadow",  "Star",   "Thimble", "Willow"};
inline constexpr std::string_view kFoods[] = {
    "apple pie",  "barley soup", "fresh bread", "fried fish",       "plum cake",
    "roast lamb", "honey cake",  "potato stew", "cheese and pears", "mushroom pie"};
inline constexpr std::string_view kOccasions[] = {
    "at a wedding",      "at the market",      "on a train",     "at a town meeting",
    "in a small school", "at the summer fair", "in a hospital",  "on a ferry",
    "in a bookshop",     "at a concert",       "during a flood", "at the harvest dance"};
inline constexpr std::string_view kWorries[] = {
    "the price of flour", "the broken bridge", "the new railway",          "the long winter",
    "the school roof",    "the bad harvest",   "the letter from the bank", "the leaking boat"};

/// Sentences with facts in braces, {name}, {they}, {home}, ..., which synthetic.cpp fills in.
inline constexpr std::string_view kBirth[] = {
    "{name} was born in {birth_town} on {birth_date}.",
    "On {birth_date}, {name} was born in {birth_town}, a town on the river {birth_river}.",
    "{name} came into the world in {birth_town} on {birth_date}.",
    "The parish book of {birth_town} says that {name} was born on {birth_date}.",
    "Born in {birth_town} in {birth_year}, {name} grew up near the river {birth_river}.",
    "{name} was a child of {birth_town}, where {they} was born on {birth_date}."};
inline constexpr std::string_view kWork[] = {
    "{They} worked as {a_job} for most of {their} life.",
    "{First} became {a_job}, as {their} mother had been.",
    "{They} earned {their} living as {a_job}.",
    "For many years {first} was the best known {job} in {home}.",
    "{They} learned to be {a_job} in {birth_town} and never wanted other work.",
    "People called {them} the {job} of {home}.",
    "By profession {first} was {a_job}."};
inline constexpr std::string_view kHome[] = {
    "In {moved} {they} moved to {home}.",
    "{They} left {birth_town} and settled in {home} in {moved}.",
    "From {moved} on, {first} lived in {home}, in the county of {county}.",
    "{Their} house stood in {home}, close to the river {river}.",
    "{First} bought a small house in {home} in {moved}.",
    "After {moved} {they} was at home in {home}, which was known for {known}."};
inline constexpr std::string_view kFriend[] = {
    "{They} met {friend} {met_at} in {met_town} in {met_year}.",
    "{Their} closest friend was {friend}, {a_friend_job} from {friend_town}.",
    "In {met_year}, {met_at} in {met_town}, {they} met {friend}, and the two became friends.",
    "{First} and {friend} had known each other since {met_year}.",
    "It was {met_at} in {met_town} that {first} first spoke to {friend}.",
    "No one knew {them} better than {friend}, whom {they} had met in {met_town}."};
inline constexpr std::string_view kPet[] = {
    "{They} had {an_animal} called {animal_name}.",
    "{Their} {animal}, {animal_name}, followed {them} everywhere.",
    "Every child in {home} knew {first}'s {animal}, which was called {animal_name}.",
    "{They} never went out without {animal_name}, {their} {animal}."};
inline constexpr std::string_view kLeisure[] = {
    "In the evenings {they} {hobby}.",
    "On Sundays {first} {hobby}, and on {weekday}s {they} slept late.",
    "When the work was done, {they} {hobby} and ate {food}.",
    "{They} liked {food} more than anything else.",
    "In {season} {they} {hobby} until it was dark.",
    "If there was {food} on the table, {first} was happy."};
inline constexpr std::string_view kCharacter[] = {
    "{They} spoke little, but {they} never forgot a promise.",
    "People trusted {them} because {they} told the truth.",
    "{First} was known to be patient, and a little proud.",
    "{They} laughed easily and was seldom angry.",
    "{They} was always early and disliked to wait.",
    "Strangers thought {them} shy; {their} friends knew better.",
    "{They} wrote everything down in a small green book."};

inline constexpr std::string_view kTownFirst[] = {
    "{home} is a town in the county of {county}, on the river {river}.",
    "The town of {home} lies on the river {river}, in the county of {county}.",
    "Travelers who follow the river {river} through {county} come to {home}.",
    "{home} was founded in {founded}, where a road crosses the river {river}."};
inline constexpr std::string_view kTownMore[] = {
    "It is known for {known}.",
    "It was founded in {founded}, and its market is held every {market_day}.",
    "Every {market_day} there is a market in the square.",
    "People come from all over {county} to see {known}.",
    "The oldest house in {home} was built in {founded}.",
    "In {season} the streets are full, and the inns have no room."};
inline constexpr std::string_view kTownPeople[] = {
    "One of its people was {name}, {a_job}, who came there in {moved}.",
    "{name}, {a_job}, lived there from {moved} on.",
    "The {job} {name}, who was born in {birth_town}, had a house near the bridge.",
    "There {name} {hobby}, and everyone knew {their} {animal} {animal_name}."};

inline constexpr std::string_view kMeeting[] = {
    "In {met_year} {name}, {a_job}, met {friend}, {a_friend_job}, {met_at} in {met_town}.",
    "It was {season}, and {weather}. {name} stood alone {met_at} in {met_town} when {friend} "
    "came in.",
    "Nobody in {met_town} remembers much of {met_year}, but {name} and {friend} do: they met "
    "{met_at}."};
inline constexpr std::string_view kSaid[] = {
    "\"I come from {birth_town},\" said {first}. \"Do you know it?\"",
    "\"My name is {name},\" said {first}. \"I am {a_job}.\"",
    "\"You look tired,\" said {first}. \"Have some {food}.\"",
    "\"Is this seat free?\" asked {first}.", "\"They talk of nothing but {worry},\" said {first}."};
inline constexpr std::string_view kAnswered[] = {
    "\"I am {friend},\" was the answer. \"I was born in {friend_town}.\"",
    "{friend_first} smiled. \"I am {a_friend_job}, and I have time.\"",
    "\"I have seen {home} once,\" said {friend_first}, \"because of {known}.\"",
    "\"Then you must be the {job} from {home},\" said {friend_first}."};
inline constexpr std::string_view kParted[] = {
    "They talked until the lamps were put out.", "From that day on they were friends.",
    "A year later they still wrote to each other every week.",
    "When they parted, {weather}, and neither of them minded.",
    "Long afterwards {first} said that {met_year} had been a good year."};

inline constexpr std::string_view kLetterOpens[] = {
    "I hope that this letter finds you well.",
    "Thank you for your letter, which came on {weekday}.",
    "Last {weekday} {weather} here in {home}.",
    "You asked me for news from {home}, so here it is."};
inline constexpr std::string_view kLetterNews[] = {
    "Everyone speaks of {worry}.",
    "My {animal} {animal_name} is well and sends you greetings.",
    "Do you remember how we met {met_at} in {met_town}? That was in {met_year}.",
    "I am still {a_job}, and I still like it.",
    "Since I came here in {moved} I have not been back in {birth_town}.",
    "On {weekday} we had {food}, and I thought of you.",
    "The market was on {market_day}, as always, and I bought too much.",
    "The {river} froze last {weekday}, and the children were on the ice."};
inline constexpr std::string_view kLetterCloses[] = {
    "Write to me soon.", "Come and see me before the {season} ends.",
    "I must stop here, for the post leaves at noon.", "Give my best wishes to your family."};

/// "question|answer"
inline constexpr std::string_view kQuestions[] = {
    "Where was {name} born?|{First} was born in {birth_town}.",
    "When was {name} born?|{They} was born on {birth_date}.",
    "What was the profession of {name}?|{First} was {a_job}.",
    "Where did {name} live?|{They} lived in {home}.",
    "Whom did {name} meet in {met_year}?|{They} met {friend}.",
    "Where did {name} meet {friend}?|They met {met_at} in {met_town}.",
    "What was the name of {name}'s {animal}?|It was called {animal_name}.",
    "Which river flows through {home}?|The river {river}.",
    "When was {home} founded?|It was founded in {founded}.",
    "What is {home} known for?|It is known for {known}."};

inline constexpr std::string_view kMorning[] = {
    "On {weekday} morning {weather}, and {name} got up late.",
    "{name} woke before the bells of {home} rang; {weather}.",
    "That {weekday} {name}, the {job} of {home}, left the house early.",
    "It was a {weekday} in {season}; {weather}, and {name} did not want to leave the house."};
inline constexpr std::string_view kNoon[] = {
    "At noon {they} ate {food} and talked about {worry}.",
    "{First} fed {animal_name}, the {animal}, and went down to the river {river}.",
    "A letter from {friend} lay on the table; {they} read it twice.",
    "In the square {first} met a stranger who asked the way to {birth_town}.",
    "{They} worked until noon, as {a_job} must.",
    "Someone asked {them} about {worry}, but {they} only laughed."};
inline constexpr std::string_view kEvening[] = {
    "In the evening {they} {hobby}.", "When it grew dark, {weather}, and {first} went home.",
    "Before {they} slept, {first} thought of {birth_town}, where {they} was born.",
    "{They} wrote to {friend} and put out the light."};

}  // namespace axonn::synthetic
