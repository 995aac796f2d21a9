// SPDX-License-Identifier: Apache-2.0
// What is said of words that the command line does not have.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "posenc/registry/fields.h"
#include "wrong_words.h"

#include "common.h"

namespace posenc::report {
namespace {

// "; did you mean --context?"
std::string hint(std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string_view meant = nearest_word(word, views);
  return meant.empty() ? std::string() : fmt::format("; did you mean {}?", meant);
}

// A SCHEME or RULE without quotes: its keys are separate words. The text that was meant, or nothing.
std::string unquoted(const CLI::App& verb, const std::vector<std::string>& extras) {
  if (std::none_of(extras.begin(), extras.end(),
                   [](const std::string& e) { return e.find('=') != std::string::npos; }))
    return {};
  for (const CLI::Option* o : verb.get_options()) {
    const std::string name = o->get_positional() ? o->get_name(true) : "";
    const bool scheme = name.find("SCHEME") != std::string::npos;
    if ((!scheme && name.find("RULE") == std::string::npos) || o->results().empty()) continue;
    if (o->results().front().find_first_of("./") != std::string::npos) continue;  // a file
    return fmt::format("a {} and its keys are one argument, in quotes: \"{} {}\"",
                       scheme ? "SCHEME" : "RULE", o->results().front(), fmt::join(extras, " "));
  }
  return {};
}

// The words after those that the verb has, in the order of the command line.
std::string unexpected(const CLI::App& verb) {
  const std::vector<std::string> extras = verb.remaining();
  for (const std::string& extra : extras) {
    if (extra.size() < 2 || extra[0] != '-') continue;
    const std::string word = extra.substr(0, extra.find('='));
    std::vector<std::string> options;
    for (const CLI::Option* o : verb.get_options())
      for (const std::string& name : o->get_lnames()) options.push_back("--" + name);
    return fmt::format("{} has no option {}{}", verb.get_name(), word, hint(word, options));
  }
  if (const std::string meant = unquoted(verb, extras); !meant.empty()) return meant;
  return fmt::format("{} does not accept the further argument \"{}\"", verb.get_name(),
                     fmt::join(extras, " "));
}

}  // namespace

void refuse_unknown_verb(const CLI::App& app, const std::string& word) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  for (const std::string& verb : verbs)
    if (verb == word) return;
  throw UsageError(fmt::format("no verb is called \"{}\"{} (posenc --help lists them)", word,
                               hint(word, verbs)));
}

// CLI11 says of an option that stands twice: "--context: At Most 1 required but received 2", and of
// one without a value: "--context: 1 required N missing".
std::string said(const CLI::App& app, const CLI::ParseError& e, const std::string& first) {
  const std::string text = e.what();
  if (text.rfind("A subcommand is required", 0) == 0)
    return !first.empty() ? fmt::format("a verb must come first, got \"{}\"", first)
                          : std::string("a verb is needed");
  for (const CLI::App* verb : app.get_subcommands())
    if (!verb->remaining().empty()) return unexpected(*verb);
  if (const auto at = text.find(": At Most 1 required but received "); at != std::string::npos)
    return text.substr(0, at) + " is given more than once";
  const std::string_view one = ": 1 required ", missing = " missing";
  if (const auto at = text.find(one); at != std::string::npos && text.ends_with(missing))
    return fmt::format(
        "{} needs a value, {}", text.substr(0, at),
        text.substr(at + one.size(), text.size() - missing.size() - at - one.size()));
  return text;
}

}  // namespace posenc::report
