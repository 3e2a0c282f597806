-- parking: included by scripts that park entries or look for parked ones. A parking consumer's name is this text and
-- the level.

local parking = '_retry/'
