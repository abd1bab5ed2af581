#pragma once

#include <string_view>

/// English words for paraphrased() and with_translated_names().
namespace axonn::paraphrase {

/// Rows, separated by semicolons, of words that may stand for one another in most sentences, in the
/// same form and after the same article. Another word changes the paraphrases of documents.
inline constexpr std::string_view kSynonyms =
    "about around; acquire obtain; angry irritated; area expanse; arrived appeared; asked "
    "inquired; bad poor; baker breadmaker; beautiful lovely; began started; begin start; begins "
    "starts; below beneath; big large; book volume; books volumes; bought purchased; brave bold; "
    "bricks stones; bright brilliant; brought delivered; building structure; buildings "
    "structures; buy purchase; car vehicle; careful cautious; child youngster; children "
    "youngsters; choose select; chose selected; city metropolis; clerk bookkeeper; clever smart; "
    "cold chilly; company firm; country land; cried wept; damaged harmed; dark dim; decided "
    "resolved; difficult demanding; doctor physician; each every; famous renowned; fast quick "
    "rapid; father dad; few several; field meadow pasture; fields meadows pastures; finally "
    "lastly; forest woodland; found discovered; friend companion; friends companions; gave "
    "handed; get receive; gift present; glad pleased; got received; happened transpired; happy "
    "cheerful; heirs successors; help support; helped supported; hill slope; hobby pastime; home "
    "residence; house dwelling; houses dwellings; however nevertheless; huge vast; idea opinion; "
    "important essential; job profession; journey trip; kept retained; lawyer solicitor; lent "
    "loaned; letter note; little small; lived resided; lives resides; long lengthy; made created; "
    "make create; many numerous; maybe perhaps; meeting gathering; merchant trader; miller "
    "grinder; money cash; morning daybreak; mother mom; moved relocated; need require; needed "
    "required; new recent; nurse carer; old aged; paid remitted; people folk; picture drawing; "
    "pictures drawings; pounds sovereigns; printer typesetter; problem difficulty; quiet silent; "
    "remembers recalls; rich wealthy; river stream; road street; roads streets; sad sorrowful; "
    "said stated; saw noticed; says states; school college; show reveal; showed revealed; shows "
    "reveals; simple straightforward; sold traded; soon shortly; stories tales; story tale; "
    "strange peculiar; strong powerful; tailor dressmaker; taught trained; teacher schoolmaster; "
    "thought believed; took carried; town township; towns townships; very really; village hamlet; "
    "walked strolled; wanted desired; war conflict; went proceeded; whole complete; wide broad; "
    "wrong mistaken; wrote penned; young youthful";

/// Words with a capital that are no names: months, days, titles, and words that often begin a
/// sentence right before a name.
inline constexpr std::string_view kNoNames[] = {
    "January",   "February", "March",    "April",    "May",    "June",    "July",      "August",
    "September", "October",  "November", "December", "Monday", "Tuesday", "Wednesday", "Thursday",
    "Friday",    "Saturday", "Sunday",   "Mister",   "Mrs",    "Miss",    "Doctor",    "Professor",
    "Sir",       "Lady",     "Lord",     "Saint",    "The",    "This",    "That",      "These",
    "Those",     "There",    "Then",     "And",      "But",    "For",     "From",      "With",
    "Without",   "When",     "While",    "After",    "Before", "Because", "Since",     "Although",
    "Though",    "However",  "Did",      "Does",     "Has",    "Had",     "Was",       "Were",
    "Where",     "What",     "Who",      "Whose",    "Why",    "How",     "His",       "Her",
    "Its",       "Our",      "Your",     "Their",    "She",    "They",    "You",       "Not",
    "Now",       "Once",     "Only",     "Some",     "Many",   "Most",    "All",       "Each",
    "Every",     "One",      "Two",      "Three",    "Yes",    "Dear",    "Under",     "Until"};

/// Words before a point that ends no sentence.
inline constexpr std::string_view kAbbreviations[] = {"Mr", "Mrs", "Ms", "Dr",  "Prof", "St",
                                                      "No", "vs",  "cf", "etc", "Vol",  "Fig"};

}  // namespace axonn::paraphrase
