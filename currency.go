package hongbao

import (
	"fmt"
	"strings"
)

// currencies are the ISO 4217 codes of currencies in circulation as of 2026, without funds, metals and test codes. The
// latest changes are SLE (2022), VED (2021), ZWG (2024), XCG for ANG (2025), and EUR for BGN (2026).
const currencies = " AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD " +
	"CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ " +
	"GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD " +
	"LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP " +
	"PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND " +
	"TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG "

// CheckCurrency returns an error unless the code is an ISO 4217 currency in circulation, in capital letters.
func CheckCurrency(code string) error {
	if len(code) != 3 || strings.Contains(code, " ") || !strings.Contains(currencies, " "+code+" ") {
		return fmt.Errorf("%.40q is not a currency: want an ISO 4217 code in use, such as CNY", code)
	}
	return nil
}
