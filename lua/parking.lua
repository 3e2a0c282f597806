-- parking: the prefix of the names of parking consumers, included by other scripts. What follows it says until when
-- their entries wait: "0" for no time at all, "LEVEL/MS" for a time of Redis' clock, "paused/CAMPAIGN" for the end of
-- the campaign's pause.

local parking = '_retry/'
