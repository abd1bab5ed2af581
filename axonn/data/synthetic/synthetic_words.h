#pragma once

#include <span>
#include <string_view>

/// The words and sentences of the synthetic text. Changing any of them changes the generated texts,
/// so recorded losses must be measured again.
namespace axonn::synthetic {

using Words = std::span<const std::string_view>;

extern const Words kWomen, kMen, kFamilies;
extern const Words kTownBegins, kTownEnds, kRivers, kKnownFor, kCounties;
extern const Words kMonths, kWeekdays, kSeasons, kWeather;
extern const Words kProfessions, kHobbies, kAnimals, kAnimalNames, kFoods, kOccasions, kWorries;

/// Sentences with facts in braces, {name}, {they}, {home}, ..., which synthetic.cpp fills in.
extern const Words kBirth, kWork, kHome, kFriend, kPet, kLeisure, kCharacter;
extern const Words kTownFirst, kTownMore, kTownPeople;
extern const Words kMeeting, kSaid, kAnswered, kParted;
extern const Words kLetterOpens, kLetterNews, kLetterCloses;
extern const Words kQuestions;  ///< "question|answer"
extern const Words kMorning, kNoon, kEvening;

}  // namespace axonn::synthetic
