-- parking: the prefix of the names of parking consumers, included by other scripts. The level follows it.

local parking = '_retry/'
