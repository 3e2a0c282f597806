// Package campaign turns a specification into a campaign. It reads and validates the specification, plans the packets
// before the first grab, and commits to the plan.
//
// In order of use:
//
//   - Read parses YAML or JSON and returns a hongbao.Campaign, or a *SpecError with all problems. For a campaign that
//     was built in Go, Complete fills in the defaults and Validate checks it. Canonical returns the canonical form.
//   - NewPlan cuts the total into packets and shuffles them. The same campaign and seed always give the same plan.
//     docs/campaigns.md describes how to compute it in any language.
//   - Commit returns the hash that is published before the start. Verify checks it after the seed was published.
//   - Plans caches plans for the settlement, which rejects a grant whose amount is not the planned amount.
//   - DrawCodes and ReadCodes give each packet of a coupon campaign its code. The code is secret and does not depend on
//     the seed.
//
// Read rejects everything ambiguous, such as an unknown key, an amount that is not in plain digits, a time without a
// zone, or a YAML alias. Messages quote the input, but contain no control characters.
//
// # Codes of problems
//
// The codes never change their meaning, but the messages may change.
//
//	code                            what
//	too_large                       the text is above 1 MiB
//	not_utf8                        the text is not UTF-8
//	syntax                          neither YAML nor JSON
//	document_required               the text is empty
//	more_than_one_document          something follows the first document
//	too_deep                        more than 8 levels
//	alias_refused                   a YAML anchor or alias
//	tag_refused                     an explicit YAML tag such as !!str
//	wrong_type                      the value is not a map, a list or a text, where one is expected
//	unknown_field                   the key does not exist, or is written in another case
//	duplicate_field                 the key occurs twice in one map
//	required                        the field is absent or empty
//	id_invalid                      id: not a campaign id
//	name_invalid                    name: not 1 to 200 bytes of UTF-8, or a character that controls text or its direction
//	kind_unknown                    kind: not red_packet or coupon
//	currency_unknown                currency: not an upper-case ISO 4217 code in use
//	currency_required               a coupon has an amount but no currency
//	sponsor_invalid                 sponsor: not an id
//	durability_unknown              durability: not fast, replica or fsync
//	not_integer                     a count that is not plain digits
//	amount_not_integer_minor_units  an amount that is not plain digits
//	amount_not_positive             an amount that is 0, absent or negative
//	amount_out_of_range             an amount above 2^53-1
//	packets_out_of_range            packets: not 1 to 10,000,000
//	split_mode_unknown              split.mode: not even, random or tiers
//	not_allowed_here                a field or mode that this kind or split mode does not allow
//	budget_too_small                the total is below packets times the smallest amount
//	budget_too_large                the total is above packets times split.max
//	min_above_max                   split.min is above split.max
//	too_many_tiers                  more than 1,000 tiers
//	tiers_packets_mismatch          the tiers' packets do not add up to packets
//	tiers_total_mismatch            the tiers' amounts do not add up to total
//	time_malformed                  not an RFC 3339 time with Z or an offset
//	time_leap_second                second 60
//	time_not_whole_ms               finer than a millisecond
//	time_out_of_range               before the year 2000 or after 2100
//	window_reversed                 from is not before to
//	window_too_long                 more than 400 days
//	window_past                     to is in the past
//	time_zone_unknown               time_zone: not an IANA name
//	too_many_limits                 more than 16 limits, including the limit that Complete adds
//	limit_by_invalid                by: neither "user" nor a fact's name
//	limit_per_unknown               per: not campaign, day or hour
//	limit_max_out_of_range          max: not 1 to 10,000,000
//	limit_duplicate                 two limits with the same by and per
//	user_limit_required             no limit by user per campaign (Complete adds one)
//	user_hold_too_large             a user may get more than 100 packets
//	too_many_facts                  the limits count by more than 8 facts
//	shards_out_of_range             shards: not 1 to 64
//	shards_above_deployment         shards: more than the deployment has (checked when the campaign is created)
//	limit_needs_one_shard           a limit by a fact in a campaign on several shards
//	codes_not_one                   codes: both or neither of pattern and file
//	code_pattern_invalid            codes.pattern: longer than 64 bytes, or with a byte that is not allowed
//	code_space_too_small            codes.pattern: fewer than a million codes for each packet
//	code_file_invalid               codes.file: not the name of a file, or it can't be read
//	code_count_mismatch             codes.file: not as many lines as packets
//	code_empty                      codes.file: a line is empty
//	code_invalid                    codes.file: a line is longer than 64 bytes, or not printable ASCII without spaces
//	code_duplicate                  codes.file: a line repeats another one
package campaign
