-- parking: included by scripts that park entries or look for parked ones: with consumers of this name, followed by the level.

local parking = '_retry/'
